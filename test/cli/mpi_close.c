/* mpi_close.c - two ranks of a program that has MPI itself: what is under way when messages are closed after a failure
 * reads and writes nothing of the library's memory later, when the program calls MPI. For test_mpi_groups.sh.
 *
 * usage: mpi_close PLUG-IN */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/comm/transport.h"

enum { SMALL = 512, LARGE = 1 << 20 };

static ps_transport plugged;

static int begin(int is_send, int channel, char *data, int64_t bytes)
{
    ps_request request;
    return is_send ? !plugged.ops->send_begin(&plugged, 1, (ps_channel)channel, data, bytes, &request)
                   : !plugged.ops->recv_begin(&plugged, 1, (ps_channel)channel, data, bytes, &request);
}

static int all_are(const char *data, int64_t bytes, char want)
{
    for (int64_t i = 0; i < bytes; i++)
        if (data[i] != want) return 0;
    return 1;
}

/* Two receives and a send without an answer before close; the memory has another use afterwards. */
static int close_in_the_midst(void)
{
    static char small[SMALL], large[LARGE], sent[LARGE];
    memset(sent, 's', sizeof sent);
    if (begin(0, 0, small, SMALL) || begin(0, 1, large, LARGE) || begin(1, 0, sent, LARGE)) return 2;
    plugged.ops->close(&plugged, false);
    memset(small, 'f', sizeof small);
    memset(large, 'f', sizeof large);
    memset(sent, 'f', sizeof sent);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin_s = MPI_Wtime();
    for (int flag; MPI_Wtime() - begin_s < 1;) MPI_Iprobe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    if (all_are(small, SMALL, 'f') && all_are(large, LARGE, 'f')) return 0;
    printf("a receive has written behind close\n");
    return 1;
}

/* The peer, which was away meanwhile. */
static int come_back(MPI_Comm comm)
{
    static char small[SMALL], large[LARGE], received[LARGE];
    MPI_Request requests[2], receive;
    int is_there = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Irecv(received, LARGE, MPI_BYTE, 0, 0, comm, &receive);
    MPI_Isend(small, SMALL, MPI_BYTE, 0, 0, comm, &requests[0]);
    MPI_Isend(large, LARGE, MPI_BYTE, 0, 1, comm, &requests[1]);
    const double begin_s = MPI_Wtime();
    while (!is_there && MPI_Wtime() - begin_s < 1) MPI_Test(&receive, &is_there, MPI_STATUS_IGNORE);
    if (!is_there || all_are(received, LARGE, 's')) return 0;
    printf("a send has read behind close\n");
    return 1;
}

int main(int argc, char **argv)
{
    int level, rank, rc;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    plugged.ops = library != NULL ? (const ps_transport_ops *)dlsym(library, PS_TRANSPORT_SYMBOL) : NULL;
    if (plugged.ops == NULL || !plugged.ops->open(&plugged)) return printf("no plug-in\n"), 2;
    memcpy(&comm, plugged.self, sizeof comm); /* its first member */
    rc = rank == 0 ? close_in_the_midst() : come_back(comm);
    MPI_Allreduce(MPI_IN_PLACE, &rc, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0 && rc == 0) printf("closed\n");
    fflush(stdout);
    _Exit(rc); /* MPI_Finalize might wait for what was left */
}
