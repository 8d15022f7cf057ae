/* temp_folder.h - a folder for the files of one test program, and what fault loops over files need. Run from main. */
#ifndef PS_TEST_TEMP_FOLDER_H
#define PS_TEST_TEMP_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct temp_folder {
    char path[64];
} temp_folder;

static inline temp_folder temp_folder_make(void)
{
    temp_folder f = {"/tmp/ps-test-XXXXXX"};
    if (mkdtemp(f.path) == NULL) perror(f.path), exit(2);
    return f;
}

typedef struct temp_path {
    char text[128];
} temp_path;

/* "<folder>/<name>" */
static inline temp_path temp_folder_file(const temp_folder *f, const char *name)
{
    temp_path p;
    snprintf(p.text, sizeof p.text, "%.60s/%.60s", f->path, name);
    return p;
}

/* Entries in the folder; with `remove`, none are left. */
static inline int temp_folder_entries(const temp_folder *f, int is_remove)
{
    int n = 0;
    DIR *d = opendir(f->path);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        n++;
        if (is_remove) unlink(temp_folder_file(f, e->d_name).text);
    }
    if (d != NULL) closedir(d);
    return n;
}

static inline void temp_folder_remove(const temp_folder *f)
{
    temp_folder_entries(f, 1);
    rmdir(f->path);
}

#endif
