"""Roots: the tree is that of RFC 6962, what is sealed follows what was before, and a chain is held to what they say."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from unerring.log import (
    Chain,
    EventLog,
    Head,
    Judged,
    MemoryStore,
    Root,
    Roots,
    SigningKey,
    anchor_of,
    compact,
    cut,
    head_of,
    judge_head,
    merkle_climb,
    merkle_path,
    merkle_root,
    new_key,
)
from unerring.log.index import index_name
from unerring.log.roots import FORMAT, OBJECTS_MAX, PAGE_OBJECTS
from unerring.model import TIME_MIN, LogError, protect_json, sha256_of

from .test_compaction import SMALL
from .worlds import READING, table

replace = msgspec.structs.replace


# --- the tree ---


def tree(leaves: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return hashlib.sha256(b"\1" + tree(leaves[:k]) + tree(leaves[k:])).digest()


@pytest.mark.parametrize("count", range(18))
def test_the_tree_is_that_of_rfc_6962_and_each_leaf_has_its_path(count: int) -> None:
    leaves = [b"%d" % n for n in range(count)]
    root = merkle_root(leaves)
    assert root == tree(leaves).hex()
    for at, leaf in enumerate(leaves):
        path = merkle_path(leaves, at)
        assert merkle_climb(leaf, path) == root
        assert merkle_climb(leaf + b"!", path) != root
        for step, (side, beside) in enumerate(path):
            other = ("left" if side == "right" else "right", beside)
            assert merkle_climb(leaf, (*path[:step], other, *path[step + 1 :])) != root
    assert merkle_climb(b"0", (("left", "no digits"),)) == ""


HEAD = Head("s", 0, 9, "d" * 64, 2, "i" * 64)


def test_a_root_says_its_streams_objects_and_pages_in_this_order(tmp_path: Path) -> None:
    root = Root(3, 7, "b" * 64, (HEAD,), {"x": "1", "y": "2"}, ("p",))
    leaves = [b"\0".join([b"stream", b"s", b"0", b"9", b"d" * 64, b"2", b"i" * 64])]
    leaves += [b"object\0x\x001", b"object\0y\x002", b"page\0p"]
    assert root.leaves == leaves
    assert root.statement == f"unerring-root 1\n3\n7\n{'b' * 64}\n{tree(leaves).hex()}\n".encode()
    assert root.hash == hashlib.sha256(root.statement).hexdigest()
    public = new_key(tmp_path / "key")
    signed = replace(root, key=public, signature=SigningKey(tmp_path / "key").sign(root.statement))
    anchor = anchor_of(signed)
    assert (anchor.fault(), anchor_of(root).fault(), anchor.statement) == ("", "", root.statement)
    assert replace(anchor, at_us=8).fault() == "its hash is not that of what it says"
    assert replace(anchor, hash="0" * 64).fault() == "its hash is not that of what it says"
    assert replace(anchor, signature="00").fault() == f"its signature is not by key {public}"


# --- sealing ---


def sealed(roots: Roots, newest: Root | None = None, objects: dict[str, str] | None = None, **more: object) -> Root:
    given: dict[str, object] = {"heads": [HEAD], "lasting": lambda name: False, "now_us": 5, "key": None, **more}
    return roots.seal(newest, objects=objects or {}, **given)  # type: ignore[arg-type]


def test_roots_follow_each_other_and_say_something_new() -> None:
    roots = Roots(MemoryStore())
    assert (roots.newest(), roots.read(1), list(roots.walk())) == (None, None, [])
    other = replace(HEAD, stream="a")
    first = sealed(roots, heads=[HEAD, other])
    assert first == Root(1, 5, "", (other, HEAD))
    assert sealed(roots, first, heads=[other, HEAD], now_us=6) == first, "nothing is new"
    second = sealed(roots, first, {"y": "2", "x": "1"}, heads=[HEAD, other], now_us=6)
    assert second == Root(2, 6, first.hash, (other, HEAD), {"x": "1", "y": "2"})
    assert list(second.objects) == ["x", "y"]
    assert sealed(roots, first, {"z": "3"}, heads=[HEAD, other], now_us=7) == second, "somebody else was first"
    later = replace(HEAD, through_us=10, digest="e" * 64)
    third = sealed(roots, second, {"y": "2", "x": "1"}, heads=[later, other])
    assert (third.number, roots.newest(), roots.objects(third)) == (3, third, {"x": "1", "y": "2"})
    assert [(root, fault) for root, fault in roots.walk()] == [(first, ""), (second, ""), (third, "")]


def test_objects_beyond_the_bound_that_stay_go_into_pages() -> None:
    store = MemoryStore()
    roots = Roots(store)
    staying = {f"a{n:05d}": "1" for n in range(OBJECTS_MAX)}
    first = sealed(roots, None, {**staying, "current": "0"}, lasting=lambda name: name != "current")
    assert (first.pages, len(first.objects)) == ((), OBJECTS_MAX + 1)
    more = {**staying, "b": "2", "current": "0"}
    second = sealed(roots, first, more, lasting=lambda name: name != "current")
    (page,) = second.pages
    assert roots.page(page) == dict.fromkeys(list(staying)[:PAGE_OBJECTS], "1")
    assert list(second.objects) == [*list(staying)[PAGE_OBJECTS:], "b", "current"]
    assert roots.objects(second) == more
    third = sealed(roots, second, {"c": "3"})
    assert (third.pages, roots.objects(third)["c"]) == ((page,), "3"), "pages stay"
    assert sealed(roots, third, {"c": "3"}) == third
    name = f"roots/objects-{page}.json"
    for damage in (lambda: store.replace(name, b"{}"), lambda: store.delete(name)):
        damage()
        with pytest.raises(LogError, match="is missing or damaged, but a root names it"):
            roots.objects(third)


def test_once_roots_are_signed_all_that_follow_are(tmp_path: Path) -> None:
    public = new_key(tmp_path / "key")
    key = SigningKey(tmp_path / "key")
    roots = Roots(MemoryStore())
    first = sealed(roots)
    second = sealed(roots, first, {"x": "1"}, key=key)
    assert (first.key, second.key, anchor_of(second).fault()) == ("", public, "")
    with pytest.raises(LogError, match=f"are signed by key {public}, and no key is given"):
        sealed(roots, second, {"x": "2"})
    assert sealed(roots, second, {"x": "1"}) == second, "nothing is new: nobody has to sign"
    assert [fault for _, fault in roots.walk(public)] == ["", ""]
    assert ["trusted one" in fault for _, fault in roots.walk("0" * 64)] == [False, True]


# --- reading them again ---


def walked(*roots: Root) -> list[str]:
    """What is wrong with each, where they lie in a store by their numbers."""
    store = MemoryStore()
    for root in roots:
        store.create(f"roots/{root.number:08d}.json", protect_json(root))
    return [fault for _, fault in Roots(store).walk()]


FIRST = Root(1, 5, "", (HEAD, replace(HEAD, stream="t")))
SECOND = Root(2, 6, FIRST.hash, FIRST.streams)


@pytest.mark.parametrize(
    ("roots", "wrong"),
    [
        ([FIRST, SECOND, Root(3, 7, SECOND.hash, SECOND.streams)], ["", "", ""]),
        ([replace(FIRST, before="b" * 64)], ["does not follow"]),
        ([FIRST, replace(SECOND, before="")], ["", "does not follow"]),
        ([FIRST, replace(SECOND, before="b" * 64)], ["", "does not follow"]),
        ([FIRST, Root(3, 7, SECOND.hash, SECOND.streams)], ["", "is missing; restore it", ""]),
        ([SECOND], ["is missing; restore it", ""]),
        ([FIRST, replace(SECOND, streams=(HEAD,))], ["", "says less of stream t"]),
        ([FIRST, replace(SECOND, streams=(*FIRST.streams, replace(HEAD, stream="u")))], ["", ""]),
        ([replace(FIRST, key="0" * 64, signature="00")], ["is not what key"]),
    ],
)
def test_what_is_wrong_with_a_root_is_said(roots: list[Root], wrong: list[str]) -> None:
    faults = walked(*roots)
    assert len(faults) == len(wrong)
    assert all(what in fault and bool(what) == bool(fault) for what, fault in zip(wrong, faults, strict=True)), faults


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ({"through_us": 8}, True),
        ({"through_us": 10, "digest": "e" * 64}, False),
        ({"digest": "e" * 64}, True),
        ({"from_us": -1}, True),
        ({"from_us": 1}, False),
        ({"index": 1}, True),
        ({"index": 3, "index_hash": "j" * 64}, False),
    ],
)
def test_a_stream_that_goes_back_from_root_to_root_was_rolled_back(change: dict[str, object], back: bool) -> None:
    _, fault = walked(FIRST, replace(SECOND, streams=(replace(HEAD, **change), FIRST.streams[1])))
    assert ("says less of stream s than the root before it" in fault) == back


def test_a_root_that_is_not_signed_behind_one_that_is_was_put_there(tmp_path: Path) -> None:
    public = new_key(tmp_path / "key")
    first = replace(FIRST, key=public, signature=SigningKey(tmp_path / "key").sign(FIRST.statement))
    assert ["put there by somebody without the key" in fault for fault in walked(first, SECOND)] == [False, True]
    changed = replace(first, at_us=6)
    assert [f"is not what key {public} signed" in fault for fault in walked(changed)] == [True]


def test_a_root_is_read_by_its_number_even_where_a_listing_lags() -> None:
    class Lagging(MemoryStore):
        def names(self, folder: str, after: str = "") -> list[str]:
            return [name for name in MemoryStore.names(self, folder, after) if name < "00000002"]

    roots = Roots(Lagging())
    first = sealed(roots)
    second = sealed(roots, first, {"x": "1"})
    third = sealed(roots, second, {"x": "2"})
    assert roots.newest() == third
    assert len(list(roots.walk())) == 3
    roots.store.create("roots/objects-1.json", b"")
    roots.store.create("roots/00000004.json", protect_json(third))
    with pytest.raises(LogError, match="says that it is root 3; it was renamed"):
        roots.newest()
    roots.store.replace("roots/00000004.json", protect_json(replace(third, number=4, format=FORMAT + 1)))
    with pytest.raises(LogError, match=f"has root format {FORMAT + 1}"):
        roots.read(4)


# --- chains held to them ---


def chain_of(*ends: int, store: MemoryStore | None = None, celsius: int = 0) -> Chain:
    """Segments that end there, each with one event."""
    log = EventLog(store or MemoryStore())
    chain = log.create(READING)
    for end in ends:
        chain.seal(end, table([end - 1 - celsius]))
    return log.chain("Reading")


def judged(chain: Chain, head: Head) -> str:
    found = judge_head(chain, head, 7)
    assert len(found.damage) + len(found.notes) <= 1
    return "".join([*(f"damage: {text}" for text in found.damage), *(f"note: {text}" for text in found.notes)])


def test_a_head_is_where_a_chain_ends_and_what_its_index_is() -> None:
    chain = chain_of()
    assert head_of(chain) == Head("Reading", TIME_MIN, TIME_MIN, "", 0, "")
    chain = chain_of(10, 20)
    last = chain.last()
    assert last is not None
    assert head_of(chain) == Head("Reading", TIME_MIN, 20, last.sealed, 0, "")
    cut(chain, 20)
    content = chain.store.read(f"{chain.indexes.folder}/{index_name(1)}")
    assert content is not None
    assert head_of(chain) == Head("Reading", 20, 20, last.sealed, 1, sha256_of(content))


def test_a_chain_that_only_grew_is_what_a_root_says() -> None:
    store = MemoryStore()
    assert judged(chain_of(), head_of(chain_of())) == ""
    head = head_of(chain_of(10, 20, store=store))
    assert judged(chain_of(store=store), head) == ""
    assert judged(chain_of(30, store=store), head) == ""
    assert judged(chain_of(10), head_of(chain_of())) == "", "nothing was sealed then"


def test_a_chain_that_was_rolled_back_or_rewritten_is_named() -> None:
    head = head_of(chain_of(10, 20))
    assert "damage" in judged(chain_of(10), head)
    assert "ends at 10, but root 7 has it up to 20: it was rolled back" in judged(chain_of(10), head)
    assert "history was rewritten there" in judged(chain_of(10, 20, celsius=1), head)
    assert "history was rewritten there" in judged(chain_of(10, 30), head), "a longer segment that was not merged"
    assert "history was rewritten there" in judged(chain_of(10, 20, 30, celsius=1), head)
    assert "the index of Reading was rolled back" in judged(chain_of(10, 20), replace(head, index=1))
    assert "the index of Reading was rolled back" in judged(chain_of(10, 20), replace(head, from_us=TIME_MIN + 1))


def test_what_retention_and_compaction_took_is_a_note_and_no_damage() -> None:
    store = MemoryStore()
    chain = chain_of(10, 20, 30, store=store)
    heads = [head_of(chain_of(*ends)) for ends in ((10,), (10, 20), (10, 20, 30))]
    compact(chain, SMALL)
    assert chain.index.number
    head = head_of(chain)
    assert judged(chain, head) == ""
    assert "is not the one that root 7 names: it was changed" in judged(chain, replace(head, index_hash="0" * 64))
    notes = [judged(chain, each) for each in heads]
    assert any("note: Reading: what root 7 names was merged with later segments since" in note for note in notes)
    assert not any("damage" in note for note in notes)
    cut(chain, 30)
    assert chain.base.from_us == 30
    assert judged(chain, heads[0]) == "note: Reading: what root 7 names was removed by retention since"
    assert judged(chain, heads[2]) == ""
    assert "begins after another segment than root 7 names" in judged(chain, replace(heads[2], digest="0" * 64))


def test_judgements_add_up() -> None:
    both = Judged(["a"], ["b"])
    both.add(Judged(["c"], ["d"]))
    assert (both.damage, both.notes) == (["a", "c"], ["b", "d"])
