"""Publishing and consuming over a reliable channel: the channel machines on asyncio, and the same for blocking code."""

from unerring.runtime.channel.blocking import Publisher, Subscriber
from unerring.runtime.channel.publisher import AsyncPublisher
from unerring.runtime.channel.records import Received
from unerring.runtime.channel.relay import AsyncRelay
from unerring.runtime.channel.subscriber import AsyncSubscriber, OnLoss

__all__ = ["AsyncPublisher", "AsyncRelay", "AsyncSubscriber", "OnLoss", "Publisher", "Received", "Subscriber"]
