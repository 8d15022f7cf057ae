#include "base/plugin_file.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Folders relative to a file: as built, next to a library in PREFIX/lib, next to a program in PREFIX/bin. */
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
    static const char here = 0;
    f->n = 0;
    const char *given = getenv("PATRICKSTAR_PLUGIN_PATH");
    if (given != NULL && given[0] != '\0') {
        folders_add(f, given, "");
        return;
    }
    char file[PATH_MAX];
    Dl_info info;
    struct link_map *map = NULL;
    /* Path of the shared library that contains this code; a statically linked program has none. A relative path is
     * refused: it would depend on the working folder, and the plug-in is executed. */
    if (dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map->l_name[0] == '/' &&
        realpath(map->l_name, file) != NULL)
        folders_add_near(f, file);
    const ssize_t length = readlink("/proc/self/exe", file, sizeof file - 1);
    if (length <= 0) return;
    file[length] = '\0';
    folders_add_near(f, file);
}

bool ps_plugin_find(const char *name, char *path, size_t bytes)
{
    folders f;
    folders_find(&f);
    for (int i = 0; i < f.n; i++) {
        const int length = snprintf(path, bytes, "%s/libpatrickstar_%s.so", f.path[i], name);
        if (length > 0 && (size_t)length < bytes && access(path, F_OK) == 0) return true;
    }
    return false;
}

void ps_plugin_places(char *out, size_t bytes)
{
    folders f;
    size_t length = 0;
    folders_find(&f);
    out[0] = '\0';
    for (int i = 0; i < f.n && length < bytes; i++)
        length += (size_t)snprintf(out + length, bytes - length, "%s%s", i > 0 ? ", " : "", f.path[i]);
}
