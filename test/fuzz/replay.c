/* replay.c - run a fuzz target over files without libFuzzer, so that a corpus is a test on every machine.
 *
 * usage: replay_<target> FILE_OR_FOLDER... (folders are not searched deeper). Fails when there is no file to run. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static int replay_file(const char *path)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (file == NULL || fstat(fileno(file), &info) != 0) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    const size_t n_bytes = (size_t)info.st_size;
    uint8_t *data = malloc(n_bytes + 1);
    if (data == NULL || fread(data, 1, n_bytes, file) != n_bytes) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, n_bytes);
    free(data);
    return 1;
}

static int replay_folder(const char *path)
{
    int n_files = 0;
    DIR *folder = opendir(path);
    if (folder == NULL) return replay_file(path);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char inner[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        n_files += replay_file(inner);
    }
    closedir(folder);
    return n_files;
}

int main(int argc, char **argv)
{
    int n_files = 0;
    for (int i = 1; i < argc; i++) n_files += replay_folder(argv[i]);
    printf("%d inputs replayed\n", n_files);
    return n_files > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
