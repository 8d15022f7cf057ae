#include "chunk/comm/transport_mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/plugin_file.h"

typedef enum mpi_kind { MPI_OPEN, MPI_MPICH, MPI_KIND_COUNT } mpi_kind;

static const struct {
    const char *name, *package;
} kinds[MPI_KIND_COUNT] = {[MPI_OPEN] = {"openmpi", "openmpi-bin"}, [MPI_MPICH] = {"mpich", "mpich"}};

/* ---- choosing the MPI ---- */

static int32_t number_of(const char *variable)
{
    const char *text = getenv(variable);
    const long n = text != NULL ? strtol(text, NULL, 10) : 0;
    return n > 0 && n <= INT32_MAX ? (int32_t)n : 0;
}

/* Variables of Open MPI's mpirun, of MPICH's (and other PMI launchers), of srun. */
int32_t ps_transport_mpi_launched(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++)
        if (number_of(sizes[i]) > 0) return number_of(sizes[i]);
    return 1;
}

typedef struct mpi_choice {
    mpi_kind first;
    bool is_only;
} mpi_choice;

static ps_status choice_make(mpi_choice *out)
{
    *out = (mpi_choice){.first = MPI_OPEN};
    const char *wanted = getenv("PATRICKSTAR_MPI");
    if (wanted != NULL && wanted[0] != '\0') {
        out->is_only = true;
        for (int k = 0; k < MPI_KIND_COUNT; k++) {
            out->first = (mpi_kind)k;
            if (strcmp(wanted, kinds[k].name) == 0) return PS_OK;
        }
        return PS_FAIL(PS_EINVAL, "PATRICKSTAR_MPI is \"%s\": it must be openmpi or mpich", wanted);
    }
    const bool is_open = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
    const bool is_mpich = getenv("PMI_SIZE") != NULL || getenv("PMI_RANK") != NULL;
    out->is_only = is_open || is_mpich; /* srun with PMIx does not tell which MPI */
    if (!is_open && is_mpich) out->first = MPI_MPICH;
    return PS_OK;
}

/* ---- loading ---- */

static ps_status plugin_open(const char *path, mpi_kind kind, ps_transport *out)
{
    /* MPI libraries load components that look up symbols here; they are never unloaded */
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL)
        return PS_FAIL(PS_ENOSYS, "cannot load %s: %s. Is the package %s installed?", path, dlerror(),
                       kinds[kind].package);
    const ps_transport_ops *ops = dlsym(library, PS_TRANSPORT_SYMBOL);
    if (ops == NULL || ops->abi != PS_TRANSPORT_ABI)
        return PS_FAIL(PS_ENOSYS, "%s does not fit this library (interface %d, wanted %d): build and install both anew",
                       path, ops != NULL ? (int)ops->abi : 0, PS_TRANSPORT_ABI);
    *out = (ps_transport){.ops = ops, .rank = 0, .size = 1};
    snprintf(out->name, sizeof out->name, "mpi");
    return PS_OK;
}

/* False: none. */
static bool plugin_load(mpi_kind kind, ps_transport *out, ps_status *st)
{
    char path[PATH_MAX + 64];
    if (!ps_plugin_find(kinds[kind].name, path, sizeof path)) return false;
    *st = plugin_open(path, kind, out);
    return true;
}

static ps_status plugin_missing(const mpi_choice *choice)
{
    char where[512];
    const char *name = kinds[choice->first].name;
    ps_plugin_places(where, sizeof where);
    return PS_FAIL(PS_ENOSYS,
                   "libpatrickstar_%s.so%s is in none of: %s. Build it with `make MPI=%s` (package lib%s-dev) or set "
                   "PATRICKSTAR_PLUGIN_PATH to its folder",
                   name, choice->is_only ? "" : " (nor that of mpich)", where, name, name);
}

ps_status ps_transport_mpi_load(ps_transport *out)
{
    mpi_choice choice;
    ps_status st;
    *out = (ps_transport){0};
    PS_TRY(choice_make(&choice));
    if (plugin_load(choice.first, out, &st) || (!choice.is_only && plugin_load(MPI_MPICH, out, &st))) return st;
    return plugin_missing(&choice);
}
