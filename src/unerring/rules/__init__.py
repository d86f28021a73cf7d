"""The rule language: plans, what they mean, and what runs them. Read `plan`, then `patterns`, then `oracle`."""

from unerring.rules import fn
from unerring.rules.plan import JoinPlan, OperatorPlan, PatternPlan, Plan, WindowPlan

__all__ = ["JoinPlan", "OperatorPlan", "PatternPlan", "Plan", "WindowPlan", "fn"]
