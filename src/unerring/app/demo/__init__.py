"""The demonstration: a producer that is killed, networks that lose, a consumer that crashes, ledgers that balance."""
