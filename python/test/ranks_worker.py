"""What a rank of test_ranks.py does: argument 1 is the case. Writes "rank N of M: ..." when all went well."""
import ctypes
import os
import sys
import threading

import torch
import torch.distributed as dist

from patrickstar import _ranks
from patrickstar._library import check, library

SUM = 0


def all_reduce(ranks, value):
    numbers = (ctypes.c_double * 1)(value)
    check(library.ps_comm_all_reduce(ranks.comm, numbers, ctypes.c_int64(1), SUM))
    return numbers[0]


def broadcast(ranks, text, root):
    data = ctypes.create_string_buffer(text, 16)
    check(library.ps_comm_broadcast(ranks.comm, data, ctypes.c_int64(16), root))
    return data.value


def exchange(ranks):
    for i in range(20):
        assert all_reduce(ranks, 10.0 ** ranks.rank) == sum(10.0 ** r for r in range(ranks.size)), "all_reduce %d" % i
    for root in range(ranks.size):
        assert broadcast(ranks, b"of rank %d" % ranks.rank, root) == b"of rank %d" % root
    big = ctypes.create_string_buffer(bytes([ranks.rank]) * 9_000_000)  # more than a round of messages carries
    check(library.ps_comm_broadcast(ranks.comm, big, ctypes.c_int64(len(big.raw)), 1))
    assert big.raw[0] == 1 and big.raw[-2] == 1


def case_default_group():
    ranks = _ranks.init()
    assert (ranks.rank, ranks.size) == (dist.get_rank(), dist.get_world_size())
    exchange(ranks)
    ranks.close()
    ranks.close()
    dist.barrier()  # the program's own group is as it was
    return ranks


def case_own_collectives_meanwhile():
    """The program's all-reduces run on another thread, in an order of their own against the library's."""
    ranks = _ranks.init()
    seen = []

    def own():
        for i in range(200):
            t = torch.full((1000,), float(i))
            dist.all_reduce(t)
            seen.append(bool((t == i * ranks.size).all()))
    thread = threading.Thread(target=own)
    thread.start()
    exchange(ranks)
    thread.join()
    assert len(seen) == 200 and all(seen), "the program's own all-reduce got something else"
    ranks.close()
    return ranks


def case_group_given():
    everybody = dist.new_group(list(range(dist.get_world_size())))
    ranks = _ranks.init(group=everybody)
    exchange(ranks)
    ranks.close()
    return ranks


def case_no_group():
    """torchrun alone: the package makes the default group."""
    ranks = _ranks.init()
    assert dist.is_initialized() and dist.get_backend() == "gloo"
    exchange(ranks)
    ranks.close()
    return ranks


def case_mpi():
    ranks = _ranks.init()
    assert not dist.is_initialized() and ranks.description.startswith("mpi"), ranks.description
    exchange(ranks)
    ranks.close()
    return ranks


def case_exit_without_close():
    ranks = _ranks.init()
    exchange(ranks)
    return ranks


def case_one_raises():
    """A rank ends by an exception: the other's next call fails with its words."""
    dist.init_process_group("gloo")
    ranks = _ranks.init()
    exchange(ranks)
    if ranks.rank == 1:
        raise ValueError("a thing that only rank 1 knows")
    try:
        all_reduce(ranks, 1.0)
    except RuntimeError as error:
        print("rank 0 heard: %s" % error, flush=True)
        os._exit(0)
    raise AssertionError("rank 0 did not notice")


def case_one_after_the_other():
    """In one process, as starting it takes longest."""
    dist.init_process_group("gloo")
    case_default_group()
    case_group_given()
    case_own_collectives_meanwhile()
    return case_exit_without_close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    done = globals()["case_" + sys.argv[1]]()
    sys.stdout.write("rank %d of %d: %s\n" % (done.rank, done.size, done.description))
