/* test_cuda_plugin.c - the plug-in with the kernels for GPUs: found, refused when it is another version's, loaded once;
 * and what the one of this build has in it, where nvcc has made one (make CUDA=1). */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "assert_status.h"
#include "device/cuda/plugin.h"
#include "kernel/cuda/cuda_operator.h"

static char folder[] = "/tmp/test_plugin_XXXXXX";

/* A command of a shell that knows the folder as $folder. */
static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

/* A plug-in with that source in the folder. */
static void compile(const char *source)
{
    char path[64];
    snprintf(path, sizeof path, "%s/plugin.c", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#include \"device/cuda/plugin.h\"\n%s\n", source);
    fclose(f);
    run("${CC:-cc} -shared -fPIC -Iinclude -Isrc -o $folder/libpatrickstar_cuda.so $folder/plugin.c");
}

static void loads_not(const char *text)
{
    const ps_cuda_image *image;
    assert_fails(ps_cuda_image_load(&image), PS_ENOSYS, text);
    assert_null(image);
    assert_null(strchr(ps_last_error(), '\n'));
}

static void test_other_files(void **state)
{
    (void)state;
    loads_not("libpatrickstar_cuda.so, which has the kernels for GPUs, is in none of: /tmp/test_plugin_");
    assert_non_null(strstr(ps_last_error(), "`make CUDA=1`, the wheel with `make python CUDA=1`"));
    run("echo no library >$folder/libpatrickstar_cuda.so");
    loads_not("cannot load the kernels for GPUs: ");
    compile("int something_else;");
    loads_not("has the kernels of another version of this library: build and install both anew");
    compile("const ps_cuda_image ps_cuda_plugin = {PS_CUDA_IMAGE_ABI + 1, 0, \"" PS_CUDA_SUM "\", 0};");
    loads_not("another version");
    compile("const ps_cuda_image ps_cuda_plugin = {PS_CUDA_IMAGE_ABI, 0, \"0123\", 0};");
    loads_not("another version");
}

static void test_loaded_once(void **state)
{
    (void)state;
    const ps_cuda_image *image, *again;
    compile("static const void *const m[] = {\"a\"};\n"
            "const ps_cuda_image ps_cuda_plugin = {PS_CUDA_IMAGE_ABI, 1, \"" PS_CUDA_SUM "\", m};");
    assert_ok(ps_cuda_image_load(&image));
    assert_int_equal(image->n_modules, 1);
    assert_string_equal(image->modules[0], "a");
    setenv("PATRICKSTAR_PLUGIN_PATH", "/nowhere", 1);
    assert_ok(ps_cuda_image_load(&again));
    assert_ptr_equal(image, again);
}

/* ---- the one of this build ---- */

/* As the driver knows images; then their bytes. */
typedef struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
} fatbin;

static bool has_kernel(const ps_cuda_image *image, const char *name)
{
    for (int i = 0; i < image->n_modules; i++) {
        const fatbin *f = image->modules[i];
        if (memmem(f, f->header_bytes + f->bytes, name, strlen(name) + 1) != NULL) return true;
    }
    return false;
}

static void test_plugin_of_this_build(void **state)
{
    (void)state;
    char path[PATH_MAX + 64];
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    assert_true(length > 0);
    path[length] = '\0';
    for (int i = 0; i < 3; i++) *strrchr(path, '/') = '\0'; /* BUILD/test/cuda/this */
    strcat(path, "/libpatrickstar_cuda.so");
    void *library = access(path, F_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const ps_cuda_image *image = library != NULL ? dlsym(library, PS_CUDA_IMAGE_SYMBOL) : NULL;
    if (image == NULL || strcmp(image->kernels, PS_CUDA_SUM) != 0) skip(); /* not made, or not anew */
    assert_int_equal(image->abi, PS_CUDA_IMAGE_ABI);
    assert_true(image->n_modules > 0);
    for (int i = 0; i < image->n_modules; i++) {
        assert_int_equal((uintptr_t)image->modules[i] % 8, 0);
        assert_int_equal(((const fatbin *)image->modules[i])->magic, 0xba55ed50);
    }
    for (int k = 0; k < PS_CUDA_KERNEL_COUNT; k++)
        if (!has_kernel(image, ps_cuda_kernel_table[k].name)) fail_msg("%s is missing", ps_cuda_kernel_table[k].name);
}

static int begin(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || setenv("folder", folder, 1) != 0 ||
           setenv("PATRICKSTAR_PLUGIN_PATH", folder, 1) != 0;
}

static int end(void **state)
{
    (void)state;
    run("rm -r $folder");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_loaded_once),
        cmocka_unit_test(test_plugin_of_this_build),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
