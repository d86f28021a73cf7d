"""Secret columns in the log: encrypted in every file, the same bytes from everybody, erased for one key."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from unerring import Event, EventLog, Stamp, schema_of, stream
from unerring.log import (
    KEYS_VARIABLE,
    BadEvent,
    Chain,
    Keys,
    LogWriter,
    MemoryStore,
    MissingKey,
    Parts,
    Quarantine,
    Reason,
    Spread,
    bring_back,
    compact,
    decrypt_bytes,
    encode_segment,
    encrypt_bytes,
    erase,
    erased_rows,
    held,
    is_encrypted,
    new_ring,
    read_ring,
    rotate,
    table_of,
    with_origin,
    write_part,
)
from unerring.log.keys import _NODE_BYTES, _leaf, path_of
from unerring.log.runs import write_run
from unerring.log.segments import Footer
from unerring.model import TIME_MIN, CallerError, LogError, SchemaError, StreamSchema, all_shown, shown


@stream(key="who", secret=("card", "limit", "seen"))
class Payment:
    who: str
    amount: float
    card: str | None = None
    limit: int | None = None
    seen: bytes | None = None


SCHEMA = schema_of(Payment)
CARD = "4111-2222-3333"


def pay(time: int, who: str, ordinal: int = 0) -> Event:
    payload = {"who": who, "amount": 1.5, "card": f"{CARD}-{time}", "limit": time, "seen": CARD.encode()}
    return Event("Payment", Stamp(time, ordinal), (who,), payload)


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "ring"
    new_ring(path)
    monkeypatch.setenv(KEYS_VARIABLE, str(path))
    return path


def rows(*events: Event) -> object:
    return with_origin(table_of(list(events), SCHEMA), SCHEMA)


def filled(store: MemoryStore, through: int = 300) -> Chain:
    chain = EventLog(store).create(SCHEMA, buckets=2)
    for second in range(1, through + 1):
        chain.seal(second, rows(pay(second, f"w{second % 3}")))
    return chain


def everything(store: MemoryStore) -> bytes:
    def walk(folder: str) -> Iterator[bytes]:
        for name in store.names(folder):
            path = f"{folder}/{name}".lstrip("/")
            data = store.read(path)
            yield from [data] if data is not None else walk(path)

    return b"".join(walk(""))


def cards(chain: Chain) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = {}
    for row in chain.read(chain.base.from_us, chain.through_us, columns=["who", "card"]).to_pylist():
        found.setdefault(row["who"], set()).add(row["card"])
    return found


def test_values_come_back_and_no_object_has_them(ring: Path) -> None:
    store = MemoryStore()
    chain = filled(store)
    table = chain.read(0, 300, columns=["card", "limit", "seen"])
    assert table.column("card").to_pylist() == [f"{CARD}-{second}" for second in range(1, 301)]
    assert table.column("limit").to_pylist() == list(range(1, 301))
    assert set(table.column("seen").to_pylist()) == {CARD.encode()}
    coded = chain.read(0, 300, 1, ["card"], coded=True).column("card")
    assert str(coded.type).startswith("dictionary")
    assert coded.to_pylist()[0].startswith(CARD)
    compact(chain)
    assert len(chain.spans(TIME_MIN, 300)) == 1
    assert table.equals(chain.read(0, 300, columns=["card", "limit", "seen"]).select(table.column_names))
    assert CARD.encode() not in everything(store)


def test_compaction_and_other_buckets_need_no_key(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    before = cards(filled(store))
    monkeypatch.delenv(KEYS_VARIABLE)
    log = EventLog(store)
    log.respread("Payment", 3)
    compact(log.chain("Payment"))
    assert len(log.chain("Payment").spans(TIME_MIN, 300)) == 1
    assert log.chain("Payment").read(0, 300, 2, ["amount"]).num_rows
    with pytest.raises(MissingKey, match=r"stream Payment has secret columns \(card, limit, seen\), and no keys are"):
        log.chain("Payment").read(0, 300)
    assert log.veiled("Payment").read(0, 300).column("card").null_count == 300
    monkeypatch.setenv(KEYS_VARIABLE, str(ring))
    assert cards(log.chain("Payment")) == before


def test_two_writers_make_the_same_bytes_and_no_two_rows_do(ring: Path) -> None:
    draft = Footer("Payment", 0, 9, 0, ())
    one, other = (encode_segment(rows(pay(1, "a"), pay(2, "a")), SCHEMA, 2, draft)[0] for _ in range(2))
    assert one == other
    chain = EventLog(MemoryStore()).create(SCHEMA, 1)
    same = {"who": "a", "amount": 1.0, "card": CARD, "limit": 1, "seen": None}
    events = [Event("Payment", Stamp(time, 0), (who,), {**same, "who": who}) for time in (1, 2) for who in ("a", "b")]
    events = [
        msgspec.structs.replace(event, stamp=Stamp(event.stamp.time, number % 2)) for number, event in enumerate(events)
    ]
    chain.seal(5, rows(*events))
    [cells] = chain.lying(chain.spans(0, 5)[0], ["_encrypted_card"])
    assert len(set(cells.column(0).to_pylist())) == 4


def test_parts_and_runs_are_encrypted_too(ring: Path) -> None:
    store = MemoryStore()
    chain = EventLog(store).create(SCHEMA, 1)
    table = rows(pay(1, "a"), pay(2, "b"))
    part = write_part(store, chain.folder, SCHEMA, table, 0, chain.through_us, 5)  # type: ignore[arg-type]
    assert chain.seal_parts(5, [part]).won
    assert cards(chain) == {"a": {f"{CARD}-1"}, "b": {f"{CARD}-2"}}
    numbered = with_origin(table_of([pay(7, "a")], SCHEMA), SCHEMA).drop(["ordinal"])
    run = write_run(store, chain.folder, SCHEMA, Spread(1), numbered)
    assert write_run(store, chain.folder, SCHEMA, Spread(1), numbered) == run
    assert Parts(store, chain.folder, SCHEMA).part(run.part(0), ["card"]).column("card").to_pylist() == [f"{CARD}-7"]
    assert CARD.encode() not in everything(store)


def test_old_keys_read_after_a_rotation_and_new_ones_write(ring: Path) -> None:
    chain = filled(MemoryStore(), 3)
    newest = rotate(ring)
    chain.seal(9, rows(pay(9, "w0")))
    [span] = chain.spans(8, 9)
    [cell] = [cell for part in chain.lying(span, ["_encrypted_card"]) for cell in part.column(0).to_pylist()]
    assert cell[:4].hex() == newest == read_ring(ring).listed()[-1][0]
    assert cards(chain)["w0"] == {f"{CARD}-3", f"{CARD}-9"}


def test_erasing_takes_one_key_everywhere_and_changes_no_file(ring: Path) -> None:
    store = MemoryStore()
    chain = filled(store)
    copy, old_ring = EventLog(_copied(store)).chain("Payment"), ring.read_bytes()
    before = everything(store)
    assert erase(ring, "Payment", ("w1",))
    assert not erase(ring, "Payment", ("w1",))
    assert everything(store) == before
    for log in (chain, copy):
        left = cards(log)
        assert left["w1"] == {None}
        assert len(left["w0"]) == len(left["w2"]) == 100
        assert chain.check() == 0
    compact(chain)
    assert cards(chain)["w1"] == {None}
    assert old_ring != ring.read_bytes()  # whoever kept the old ring could still read
    # Later events of the key are taken, and their secret values are not kept; a new key does not change that.
    for end in (400, 500):
        chain.seal(end, rows(pay(end, "w1"), pay(end, "w2", 1)))
        assert chain.read(end - 1, end, columns=["card"]).column("card").to_pylist() == [None, f"{CARD}-{end}"]
        rotate(ring)
    assert erase(ring, "Payment", ("w2",))
    assert cards(chain)["w2"] == {None}
    assert None not in cards(chain)["w0"]


def _copied(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    for folder in ("Payment", "Payment/segments"):
        for name in store.names(folder):
            data = store.read(f"{folder}/{name}")
            if data is not None:
                copy.create(f"{folder}/{name}", data)
    return copy


def test_of_rows_as_they_lie_those_are_told_that_had_a_value_of_an_erased_key(ring: Path) -> None:
    chain = EventLog(MemoryStore()).create(SCHEMA, buckets=1)
    nothing = msgspec.structs.replace(pay(2, "w1"), payload={**pay(2, "w1").payload, "card": None})
    chain.seal(4, rows(pay(1, "w0"), nothing, pay(3, "w1")))
    [span] = chain.spans(0, 4)
    [lies] = chain.lying(span, ["time", "who", "_encrypted_card", "_encrypted_limit"])
    assert erased_rows(lies, SCHEMA, ["card", "limit"]) == [False] * 3
    erase(ring, "Payment", ("w1",))
    told = [
        dict(zip(lies.column("time").to_pylist(), gone, strict=True))
        for gone in (
            erased_rows(lies, SCHEMA, ["card"]),
            erased_rows(lies, SCHEMA, ["card", "limit"]),
            erased_rows(lies, SCHEMA, []),
        )
    ]
    assert told == [
        {1: False, 2: False, 3: True},
        {1: False, 2: True, 3: True},
        {1: False, 2: False, 3: False},
    ]


def test_data_keys_follow_from_the_ring_as_they_always_did() -> None:
    """Rings are kept for years: who derives keys in another way cannot read what was written before."""

    def derived(value: bytes, bits: str) -> bytes:
        for bit in bits:
            value = hashlib.sha256(b"unerring node " + bit.encode() + value).digest()[: len(value)]
        return value

    root = bytes(range(_NODE_BYTES))
    for who in ("w0", "w1", "ä"):
        path = path_of("Payment", (who,))
        bits = "".join(f"{byte:08b}" for byte in path)
        number = int.from_bytes(path, "big")
        assert _leaf({(0, 0): root}, number) == derived(root, bits)
        for depth in (1, 7, len(bits) - 1, len(bits)):
            above = {(depth, int(bits[:depth], 2)): derived(root, bits[:depth])}
            assert _leaf(above, number) == derived(root, bits), "from any node over it"
            assert _leaf({(depth, int(bits[:depth], 2) ^ 1): root}, number) is None
    of_stream = hashlib.sha256(b"unerring streamPayment").digest()
    of_key = hashlib.sha256(b"unerring key" + (2).to_bytes(4, "little") + b"w0").digest()
    where = path_of("Payment", ("w0",))
    assert where == of_stream[:4] + of_key[:10]


def test_a_ring_without_a_leaf_has_all_others(ring: Path) -> None:
    """What is left of the tree gives every other data key as before, after many erasures in any order."""
    ring_before = read_ring(ring)
    id = ring_before.newest

    def mark(keys: object, who: str) -> bytes:
        cipher = keys.cipher(id, "Payment", (who,))  # type: ignore[attr-defined]
        return b"" if cipher is None else bytes(cipher.encrypt(b"x", None))

    names = [f"w{number}" for number in range(60)]
    was = {name: mark(ring_before, name) for name in names}
    assert len(set(was.values())) == 60
    for name in names[::3]:
        erase(ring, "Payment", (name,))
    after = read_ring(ring)
    assert {name: mark(after, name) for name in names} == {
        name: b"" if number % 3 == 0 else was[name] for number, name in enumerate(names)
    }
    assert len({path_of("Payment", (name,)) for name in names} | {path_of("Other", ("w0",))}) == 61
    assert after.erased == 20


def test_a_wrong_ring_is_a_sentence(ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    filled(store, 3)
    other = tmp_path / "other"
    new_ring(other)
    monkeypatch.setenv(KEYS_VARIABLE, str(other))
    with pytest.raises(CallerError, match=r"is encrypted with ring .* name the ring of this run"):
        EventLog(store).create(SCHEMA, buckets=2)
    with pytest.raises(MissingKey, match=r"is not in .*other, which has .*; name the ring that this was written with"):
        EventLog(store).chain("Payment").read(0, 3)


def test_values_from_before_1970_are_secret_too(ring: Path) -> None:
    chain = EventLog(MemoryStore()).create(SCHEMA, buckets=2)
    chain.seal(4, rows(pay(-5, "w0"), pay(-1, "w1"), pay(3, "w0")))
    found = chain.read(TIME_MIN, 4, columns=["card", "limit"])
    assert found.column("card").to_pylist() == [f"{CARD}--5", f"{CARD}--1", f"{CARD}-3"]
    assert found.column("limit").to_pylist() == [-5, -1, 3]


def test_a_stream_that_grows_a_secret_column_has_its_ring_from_then_on(
    ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @stream(key="who", name="Payment")
    class Before:
        who: str

    @stream(key="who", name="Payment", added="card", secret="card")
    class Grown:
        who: str
        card: str | None = None

    @stream(key="who", name="Payment", added=("card", "seen"), secret=("card", "seen"))
    class GrownAgain:
        who: str
        card: str | None = None
        seen: bytes | None = None

    log = EventLog(MemoryStore())
    for declared, id in ((Before, ""), (Grown, read_ring(ring).id), (GrownAgain, read_ring(ring).id)):
        log.create(schema_of(declared))
        made = log.declaration("Payment")
        assert made is not None
        assert made.ring == id
    log.check_ring("Payment")
    log.check_ring("Nowhere")
    new_ring(tmp_path / "other")
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "other"))
    with pytest.raises(CallerError, match="is encrypted with ring"):
        log.check_ring("Payment")


def test_a_ring_that_others_may_read_is_refused(ring: Path, tmp_path: Path) -> None:
    ring.chmod(0o640)
    with pytest.raises(CallerError, match=r"others may read the ring .* \(mode 0640\); run: chmod 600"):
        EventLog(MemoryStore()).create(SCHEMA)
    ring.chmod(0o600)
    ring.write_bytes(ring.read_bytes()[:-1])
    with pytest.raises(LogError, match="ring is damaged"):
        EventLog(MemoryStore()).create(SCHEMA)
    ring.unlink()
    with pytest.raises(MissingKey, match="cannot be read"):
        EventLog(MemoryStore()).create(SCHEMA)
    with pytest.raises(CallerError, match="give the name of a new file"):
        new_ring(tmp_path)


def test_a_changed_or_moved_cell_is_found_even_if_all_digests_fit(ring: Path) -> None:
    import pyarrow as pa

    from unerring.log.encryption import decrypted, encrypted

    table = encrypted(rows(pay(1, "a"), pay(2, "a")), SCHEMA)  # type: ignore[arg-type]
    cells = table.column("_encrypted_card").to_pylist()

    def read(given: list[bytes]) -> object:
        forged = table.set_column(
            table.schema.get_field_index("_encrypted_card"), "_encrypted_card", pa.array(given, pa.binary())
        )
        return decrypted(lambda names: forged.select(names), ["card"], SCHEMA, (), False, "here")

    assert read(cells)
    flipped = cells[0][:-1] + bytes([cells[0][-1] ^ 1])
    for given in ([flipped, cells[1]], cells[::-1]):
        with pytest.raises(LogError, match="here: the value of secret column 'card' at 1 is not what was encrypted"):
            read(given)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"key": "who", "secret": "who"}, "key column 'who' cannot be secret"),
        ({"key": "who", "secret": "amount"}, r"secret column 'amount' must be nullable \(`amount: \.\.\. \| None`\)"),
        ({"key": "who", "secret": "pin"}, "stream Bad has no column 'pin'"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(declared: dict[str, str], said: str) -> None:
    class Bad:
        who: str
        amount: float

    with pytest.raises(SchemaError, match=said):
        stream(**declared)(Bad)  # type: ignore[arg-type]


def test_damaged_bytes_are_a_sentence_wherever_they_end(ring: Path) -> None:
    whole = encrypt_bytes(b"card " + CARD.encode(), "Payment", ("a", 7), "record")
    assert decrypt_bytes(whole, "Payment", "record", "here") == b"card " + CARD.encode()
    for end in range(len(whole)):
        if is_encrypted(whole[:end]):
            _is_damaged_or_erased(whole[:end])
    for at in range(21, len(whole)):
        _is_damaged_or_erased(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
    with pytest.raises(LogError, match="here is damaged"):
        decrypt_bytes(whole, "Payment", "another record", "here")


def _is_damaged_or_erased(data: bytes) -> None:
    """Never a value: a sentence, or nothing, as where only the head is left."""
    found: object
    try:
        found = decrypt_bytes(data, "Payment", "record", "here")
    except (LogError, MissingKey) as error:
        found = str(error)
    assert found is None or any(words in str(found) for words in ("here is damaged", "is not in"))


def test_a_stream_may_grow_by_a_secret_column_and_none_changes_sides(ring: Path) -> None:
    @stream(key="who", name="Grown")
    class Before:
        who: str
        card: str | None = None

    @stream(key="who", name="Grown", added="pin", secret="pin")
    class After:
        who: str
        card: str | None = None
        pin: str | None = None

    @stream(key="who", name="Grown", secret="card")
    class Hidden:
        who: str
        card: str | None = None

    store = MemoryStore()
    old = schema_of(Before)
    chain = EventLog(store).create(old, 1)
    chain.seal(1, with_origin(table_of([Event("Grown", Stamp(1, 0), ("a",), {"who": "a", "card": "c"})], old), old))
    with pytest.raises(SchemaError, match="column 'card' was not secret and cannot become so"):
        EventLog(store).create(schema_of(Hidden))
    new = schema_of(After)
    chain = EventLog(store).create(new, 1)
    event = Event("Grown", Stamp(2, 0), ("a",), {"who": "a", "card": "d", "pin": "PIN-0815"})
    chain.seal(2, with_origin(table_of([event], new), new))
    assert chain.read(0, 2, columns=["card", "pin"], coded=True).column("pin").to_pylist() == [None, "PIN-0815"]
    assert b"PIN-0815" not in everything(store)
    compact(chain)
    assert chain.read(0, 2, columns=["pin"]).column("pin").to_pylist() == [None, "PIN-0815"]


def test_quarantine_tells_no_bytes_and_gives_them_back(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    log = EventLog(store)
    chain = filled(store, 3)
    row = {"who": "w9", "amount": 1.5, "card": CARD, "limit": 1, "seen": None}
    late = BadEvent("p", 0, 1, Reason.LATE, "too late", msgspec.msgpack.encode(row), 7)
    other = BadEvent("p", 0, 2, Reason.SCHEMA, f"invalid value {CARD!r}", msgspec.json.encode({**row, "who": "w8"}))
    quarantine = Quarantine(store, "Payment")
    quarantine.add([late, other])
    quarantine.add([late, other])
    assert len(store.names("Payment/quarantine")) == 1
    assert CARD.encode() not in everything(store)
    shut = held(log, "Payment")
    assert [(one.raw, one.row) for one in shut] == [(b"", None)] * 2
    assert [one.detail for one in shut] == ["too late", "(secret)"]
    opened = held(log, "Payment", secrets=True)
    assert opened[0].row == {"time": 7, **row}
    assert opened[1].detail == f"invalid value {CARD!r}"
    assert bring_back(chain, opened[:1]).brought == 1
    assert cards(chain)["w9"] == {CARD}
    assert CARD.encode() not in everything(store)
    erase(ring, "Payment", ("w8",))
    assert [(one.raw, one.detail) for one in held(log, "Payment", secrets=True)] == [
        (b"", "its bytes were erased with its key")
    ]
    monkeypatch.delenv(KEYS_VARIABLE)
    with pytest.raises(MissingKey, match="the quarantine of stream Payment may hold secret values"):
        quarantine.add([late])


def test_a_writer_encrypts_what_it_takes_and_what_it_refuses(ring: Path) -> None:
    store = MemoryStore()
    writer = LogWriter(EventLog(store), SCHEMA, buckets=2)
    good = msgspec.msgpack.encode(["a", 1.0, CARD, 1, None])
    bad = msgspec.msgpack.encode(["a", CARD, CARD, CARD, None])
    writer.take("p", 0, 0, [1, 2], [good, bad], None, 0)
    writer.end(0)
    writer.seal()
    assert cards(EventLog(store).chain("Payment")) == {"a": {CARD}}
    assert [one.detail for one in held(EventLog(store), "Payment")] == ["(secret)"]
    assert CARD.encode() not in everything(store)


def test_an_event_says_nothing_of_secret_columns() -> None:
    event = pay(1, "a")
    record = Payment("a", 1.5, CARD)
    for text in (repr(event), str(event), f"{[event]}", repr(record), str(all_shown(((event,), [event])))):
        assert CARD not in text
        assert "(secret)" in text
    assert shown("Payment", event.payload)["amount"] == 1.5


# --- mutants: a log that is broken on purpose must be found by what the tests above look at


def faults(ring: Path) -> set[str]:
    """What is wrong with a log that holds payments: everything that the promises rule out."""
    store, found = MemoryStore(), set()
    chain = EventLog(store).create(SCHEMA, 1)
    same = {"amount": 1.0, "card": CARD, "limit": None, "seen": None}
    places = [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    events = [
        Event("Payment", Stamp(time, number % 2), (who,), {"who": who, **same})
        for number, (time, who) in enumerate(places)
    ]
    chain.seal(5, rows(*events))
    again = EventLog(MemoryStore()).create(SCHEMA, 1)
    again.seal(5, rows(*events))
    cells, repeated = (
        [cell for part in one.lying(one.spans(0, 5)[0], [LYING]) for cell in part.column(0).to_pylist()]
        for one in (chain, again)
    )
    if len(set(cells)) < len(cells):
        found.add("one ciphertext in two places")
    if cells != repeated:
        found.add("two writers make different bytes")
    raw = msgspec.msgpack.encode({"who": "a", **same})
    Quarantine(store, "Payment").add([BadEvent("p", 0, 1, Reason.SCHEMA, f"bad {CARD}", raw)])
    shown_to_people = msgspec.json.encode(held(EventLog(store), "Payment"))
    if CARD.encode() in everything(store) or CARD.encode() in shown_to_people:
        found.add("a value that leaks")
    erase(ring, "Payment", ("a",))
    try:
        left = cards(chain)
    except LogError:
        return found | {"a value that is lost"}
    if left["a"] != {None} or any(one.raw for one in held(EventLog(store), "Payment", secrets=True)):
        found.add("a value that was erased and is read")
    if left["b"] != {CARD}:
        found.add("a value that is lost")
    return found


LYING = "_encrypted_card"


def test_the_log_itself_has_no_fault(ring: Path) -> None:
    assert faults(ring) == set()


@pytest.mark.parametrize(
    ("mutant", "fault"),
    [
        ("a nonce used twice", "one ciphertext in two places"),
        ("a nonce that is drawn", "two writers make different bytes"),
        ("one data key for all keys", "a value that is lost"),
        ("a preview with its bytes", "a value that leaks"),
        ("a detail that repeats a value", "a value that leaks"),
        ("an erasure that keeps the node above", "a value that was erased and is read"),
        ("an erasure that keeps the ciphers in memory", "a value that was erased and is read"),
    ],
)
def test_every_mutant_is_caught(mutant: str, fault: str, ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unerring.log import encryption, keys, quarantine

    before = read_ring(ring)
    mutants: dict[str, tuple[object, str, object]] = {
        "a nonce used twice": (encryption, "place_of", lambda column, time: [column.encode()]),
        "a nonce that is drawn": (encryption, "encrypted", _drawing(encryption.encrypted)),
        "one data key for all keys": (keys, "path_of", lambda stream, key: bytes(14)),
        "a preview with its bytes": (quarantine, "_veiled", lambda event, stream: event),
        "a detail that repeats a value": (quarantine, "_TELLING", frozenset()),
        "an erasure that keeps the node above": (keys, "_without", lambda key, where: key),
        "an erasure that keeps the ciphers in memory": (encryption, "the_ring", lambda why: before),
    }
    monkeypatch.setattr(*mutants[mutant])
    if mutant == "a nonce that is drawn":
        monkeypatch.setattr("unerring.log.segments.encrypted", mutants[mutant][2])
    if mutant == "an erasure that keeps the node above":  # whoever does not look at the list of what was erased
        monkeypatch.setattr(keys.Keys, "_cipher", _unlisted)
    assert fault in faults(ring)


def _drawing(right: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(table: pa.Table, schema: StreamSchema) -> pa.Table:
        made = right(table, schema)
        at = made.schema.get_field_index(LYING)
        cells = [cell + os.urandom(4) for cell in made.column(at).to_pylist()]
        return made.set_column(at, made.schema.field(at), pa.array(cells, pa.binary()))

    return drawn


def _unlisted(keys: Keys, id: bytes, path: bytes) -> object:
    object.__setattr__(keys, "_erased", frozenset())
    return right_cipher(keys, id, path)


right_cipher = Keys._cipher
