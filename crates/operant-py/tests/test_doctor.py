"""What is said of GPUs, with and without one."""

import operant


def test_doctor_says_what_was_found_and_what_is_missing():
    report = operant.doctor()
    assert report["usable"] == (not report["problems"])
    assert set(report["libraries"]) == {"driver", "nvrtc", "cublaslt", "cudnn"}
    for library in report["libraries"].values():
        assert library["found"] == (library["version"] is not None)
        # Nothing is missing of what is not used.
        assert library["found"] or (library["problem"] is None) == (library["purpose"] == "not used")
    if not report["libraries"]["driver"]["found"]:
        assert not report["usable"] and not report["gpus"]
        assert any("install the driver" in problem for problem in report["problems"])
