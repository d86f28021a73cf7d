"""What evaluates a plan: the oracle that defines, the interpreter that runs everything, the compiled kernel."""
