from holdfast.formats.mark import WORD_SIZE
from holdfast.formats.rlog import Head, Header
from holdfast.formats.rlog_mark import Word, decode_word, encode_word, file_id
from holdfast.formats.token_file import Meta

HEAD = Head(Header(1, 4), 104, Meta("2024-01-02T03:04:05.678Z", "host"))


def test_a_word_has_a_header_a_start_and_a_flag() -> None:
    for word in (Word(), Word(b"h" * 20, 2**30 - 1, has_spare=True), Word(b"h" * 20, 7)):
        encoded = encode_word(word.header, word.start, word.has_spare)
        assert len(encoded) == WORD_SIZE
        assert decode_word(encoded) == word
    assert encode_word(bytes(20), 0, has_spare=False) == bytes(WORD_SIZE)


def test_the_id_distinguishes_files_of_one_name() -> None:
    others = [
        HEAD,
        Head(Header(1, 8), 104, HEAD.meta),
        Head(HEAD.header, 108, HEAD.meta),
        Head(HEAD.header, 104, Meta(HEAD.meta.created, "other")),
        Head(HEAD.header, 104, Meta("2024-01-02T03:04:05.679Z", "host")),
    ]
    ids = {file_id(head) for head in others}
    assert (len(ids), {len(one) for one in ids}) == (5, {16})
