#include "comm/transport_mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

typedef enum mpi_kind { MPI_OPEN, MPI_MPICH, MPI_KIND_COUNT } mpi_kind;

static const struct {
    const char *name, *package;
} kinds[MPI_KIND_COUNT] = {[MPI_OPEN] = {"openmpi", "openmpi-bin"}, [MPI_MPICH] = {"mpich", "mpich"}};

/* ---- which ---- */

static int32_t number_of(const char *variable)
{
    const char *text = getenv(variable);
    const long n = text != NULL ? strtol(text, NULL, 10) : 0;
    return n > 0 && n <= INT32_MAX ? (int32_t)n : 0;
}

/* Open MPI's mpirun, MPICH's (and what else speaks PMI), srun. */
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
    out->is_only = is_open || is_mpich; /* srun with PMIx does not say */
    if (!is_open && is_mpich) out->first = MPI_MPICH;
    return PS_OK;
}

/* ---- where ---- */

enum { FOLDERS_MAX = 6 };

typedef struct folders {
    char path[FOLDERS_MAX][PATH_MAX];
    int n;
} folders;

static void folders_add(folders *f, const char *base, const char *below)
{
    if (f->n == FOLDERS_MAX) return;
    char *path = f->path[f->n];
    const int length = snprintf(path, PATH_MAX, "%s%s", base, below);
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->path[i], path) == 0) return;
    if (length > 0 && length < PATH_MAX) f->n++;
}

/* Of a file: as built, beside a library of PREFIX/lib, beside a program of PREFIX/bin. */
static void folders_add_near(folders *f, char *file)
{
    char *slash = strrchr(file, '/');
    if (slash == NULL) return;
    *slash = '\0';
    folders_add(f, file, "");
    folders_add(f, file, "/patrickstar");
    folders_add(f, file, "/../lib/patrickstar");
}

static void folders_find(folders *f)
{
    f->n = 0;
    const char *given = getenv("PATRICKSTAR_PLUGIN_PATH");
    if (given != NULL && given[0] != '\0') {
        folders_add(f, given, "");
        return;
    }
    char file[PATH_MAX];
    Dl_info info;
    struct link_map *map = NULL;
    /* The file of the shared library that this is part of; it has no name in a program linked statically. A relative
     * name would be looked for in whatever folder is the working one now, and what is found is executed. */
    if (dladdr1(kinds, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map->l_name[0] == '/' &&
        realpath(map->l_name, file) != NULL)
        folders_add_near(f, file);
    const ssize_t length = readlink("/proc/self/exe", file, sizeof file - 1);
    if (length <= 0) return;
    file[length] = '\0';
    folders_add_near(f, file);
}

/* ---- loading ---- */

static ps_status plugin_open(const char *path, mpi_kind kind, ps_transport *out)
{
    /* MPI libraries load components of their own that look for symbols here; they are never unloaded */
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

static ps_status plugin_find(const folders *f, mpi_kind kind, ps_transport *out, bool *is_there)
{
    *is_there = false;
    for (int i = 0; i < f->n; i++) {
        char path[PATH_MAX + 64];
        snprintf(path, sizeof path, "%s/libpatrickstar_%s.so", f->path[i], kinds[kind].name);
        if (access(path, F_OK) != 0) continue;
        *is_there = true;
        return plugin_open(path, kind, out);
    }
    return PS_ENOSYS;
}

static ps_status plugin_missing(const folders *f, const mpi_choice *choice)
{
    char where[512] = "";
    size_t length = 0;
    for (int i = 0; i < f->n && length < sizeof where; i++)
        length += (size_t)snprintf(where + length, sizeof where - length, "%s%s", i > 0 ? ", " : "", f->path[i]);
    const char *name = kinds[choice->first].name;
    return PS_FAIL(PS_ENOSYS,
                   "libpatrickstar_%s.so%s is in none of: %s. Build it with `make MPI=%s` (package lib%s-dev) or set "
                   "PATRICKSTAR_PLUGIN_PATH to its folder",
                   name, choice->is_only ? "" : " (nor that of mpich)", where, name, name);
}

ps_status ps_transport_mpi_load(ps_transport *out)
{
    mpi_choice choice;
    folders f;
    bool is_there;
    *out = (ps_transport){0};
    PS_TRY(choice_make(&choice));
    folders_find(&f);
    ps_status st = plugin_find(&f, choice.first, out, &is_there);
    if (is_there || choice.is_only) return is_there ? st : plugin_missing(&f, &choice);
    st = plugin_find(&f, MPI_MPICH, out, &is_there);
    return is_there ? st : plugin_missing(&f, &choice);
}
