"""Where a log lies: named byte strings, in memory, in a folder or in an object store, behind one port."""

from unerring.log.store.addresses import join, store_at
from unerring.log.store.checking import CHECKED, check_store
from unerring.log.store.client import ABSENT, Conflict, Got, Unsure, requests_made
from unerring.log.store.credentials import options_of as store_options
from unerring.log.store.folder import LocalStore, local_folder
from unerring.log.store.memory import MemoryStore
from unerring.log.store.objects import ObjectStore, Patience
from unerring.log.store.port import Store

__all__ = [
    "ABSENT",
    "CHECKED",
    "Conflict",
    "Got",
    "LocalStore",
    "MemoryStore",
    "ObjectStore",
    "Patience",
    "Store",
    "Unsure",
    "check_store",
    "join",
    "local_folder",
    "requests_made",
    "store_at",
    "store_options",
]
