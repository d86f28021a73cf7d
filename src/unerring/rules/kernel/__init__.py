"""The compiled kernel: columnar, specialised for each rule, the same results as the interpreter."""
