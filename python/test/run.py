"""Run one file of these tests against a build of the library, and count as cmocka does: test/run.sh reads that.

usage: run.py BUILD_FOLDER TEST_FILE
"""
import os
import re
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    build, path = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    variant = os.path.basename(build)
    if "minimal" in variant:
        skip("the shared library, which such a build has not")
    if re.search("address|undefined|thread", variant):
        skip("a Python that does not know of sanitizers")
    try:
        import torch  # noqa: F401
    except ImportError:
        skip("PyTorch (Debian: python3-torch)")
    os.environ["PATRICKSTAR_LIBRARY"] = os.path.join(build, "libpatrickstar.so")
    os.environ["PYTHONPATH"] = os.path.dirname(HERE)  # of processes that tests start
    sys.path[:0] = [os.path.dirname(HERE), HERE]
    name = os.path.splitext(os.path.basename(path))[0]
    try:
        __import__(name)
    except unittest.SkipTest as why:
        skip(str(why))
    tests = unittest.defaultTestLoader.loadTestsFromName(name)
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(tests)
    n_failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    n_skipped = len(result.skipped)
    for test, why in result.skipped:
        print("not tried: %s (%s)" % (why, test))
    print("[  PASSED  ] %d test(s)." % max(result.testsRun - n_failed, 0))  # skipped ones too
    print("[  SKIPPED ] %d test(s)" % n_skipped)
    print("[  FAILED  ] %d test(s)" % n_failed)
    sys.stdout.flush()
    return 1 if n_failed or result.testsRun == 0 else 0


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


if __name__ == "__main__":
    sys.exit(main())
