import pickle

from holdfast import errors


def test_every_error_is_one_of_ours_and_says_what_to_do() -> None:
    ours = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(ours) > 8
    for kind in ours:
        assert issubclass(kind, errors.HoldfastError)
        assert kind.__name__ in (errors.__doc__ or "")


def test_corruption_crosses_processes_whole() -> None:
    error = pickle.loads(pickle.dumps(errors.CorruptError("file", 7, "why")))
    assert (error.where, error.offset, error.why) == ("file", 7, "why")
    assert str(error) == "file at byte 7: why"


def test_what_builtin_handlers_expect_still_works() -> None:
    assert issubclass(errors.DiskFullError, OSError)
    assert issubclass(errors.OutOfRangeError, IndexError)
