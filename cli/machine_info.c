/* machine_info.c - what pstar finds on the machine, as text and as JSON (machine_info.h). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "machine_info.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include "base/bytes.h"
#include "base/plugin_file.h"
#include "base/printable.h"
#include "cli.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/cudnn.h"
#include "device/cuda/library.h"
#include "device/cuda/nccl.h"
#include "device/disk_folders.h"

#ifdef PS_LINKED_STATICALLY
#define LINKED_STATICALLY true
#else
#define LINKED_STATICALLY false
#endif

enum { N_LIBRARIES = 6 };
typedef struct library_version {
    const char *name;
    char version[32];
} library_version;

/* C libraries that this program is linked with, but liburing, which says no version of its own. */
static void find_libraries(library_version out[N_LIBRARIES])
{
    const unsigned xxhash = XXH_versionNumber();
    char pcre2[64] = "unknown"; /* "10.42 2022-12-11" */
    (void)pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    pcre2[strcspn(pcre2, " ")] = '\0';
    memset(out, 0, N_LIBRARIES * sizeof *out);
    out[0].name = "jansson";
    (void)snprintf(out[0].version, sizeof out->version, "%s", jansson_version_str());
    out[1].name = "pcre2";
    (void)snprintf(out[1].version, sizeof out->version, "%.31s", pcre2);
    out[2].name = "utf8proc";
    (void)snprintf(out[2].version, sizeof out->version, "%s", utf8proc_version());
    out[3].name = "xxhash";
    (void)snprintf(out[3].version, sizeof out->version, "%u.%u.%u", xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
    out[4].name = "zlib";
    (void)snprintf(out[4].version, sizeof out->version, "%s", zlibVersion());
    out[5].name = "zstd";
    (void)snprintf(out[5].version, sizeof out->version, "%s", ZSTD_versionString());
}

static void find_disk(machine_info *m)
{
    ps_disk *d = NULL;
    m->disk_free_bytes = -1;
    if (m->folder[0] == '\0') return;
    if (ps_disk_folders_free_bytes(m->folder, &m->disk_free_bytes) != PS_OK) m->disk_free_bytes = -1;
    if (ps_disk_open(m->folder, PS_DISK_AUTO, 4, &d) != PS_OK) {
        (void)snprintf(m->disk_reason, sizeof m->disk_reason, "%s", ps_last_error());
        return;
    }
    m->is_disk_usable = true;
    m->disk = ps_disk_get_stats(d);
    ps_disk_close(d);
}

static void find_gpu(machine_info *m)
{
    const ps_cudnn *cudnn;
    if (!ps_cuda_is_expected()) return;
    if (ps_cuda_find(0, PS_CUDA_ATTENTION_AUTO, &m->gpu) != PS_OK) {
        m->gpu_state = MACHINE_INFO_GPU_UNUSABLE;
        (void)snprintf(m->gpu_reason, sizeof m->gpu_reason, "%s", ps_last_error());
        return;
    }
    m->gpu_state = MACHINE_INFO_GPU_USABLE;
    if (strncmp(m->gpu.attention, "cuDNN", strlen("cuDNN")) != 0 && ps_cudnn_load(&cudnn) != PS_OK)
        (void)snprintf(m->cudnn_reason, sizeof m->cudnn_reason, "%s", ps_last_error());
}

/* ---- NVIDIA's libraries ---- */

/* Its version as text. */
typedef ps_status (*load_nvidia)(char *version, size_t bytes);

static ps_status load_driver(char *version, size_t bytes)
{
    const ps_cuda_driver *d = NULL;
    int number = 0;
    PS_TRY(ps_cuda_get_parts()->driver(&d));
    if (d->version(&number) == PS_CU_SUCCESS)
        (void)snprintf(version, bytes, "for CUDA %d.%d", number / 1000, number % 1000 / 10);
    return PS_OK;
}

static ps_status load_cublaslt(char *version, size_t bytes)
{
    const ps_cublaslt *lt = NULL;
    PS_TRY(ps_cublaslt_load(&lt));
    const size_t v = lt->version();
    (void)snprintf(version, bytes, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    return PS_OK;
}

static ps_status load_cudnn(char *version, size_t bytes)
{
    const ps_cudnn *dnn = NULL;
    char text[PS_CUDNN_VERSION_TEXT_MAX];
    PS_TRY(ps_cudnn_load(&dnn));
    (void)snprintf(version, bytes, "%s", ps_cudnn_version_text(dnn, text));
    return PS_OK;
}

static ps_status load_nccl(char *version, size_t bytes)
{
    const ps_nccl *nccl = NULL;
    int number = 0;
    PS_TRY(ps_nccl_load(&nccl));
    if (nccl->version(&number) == PS_NCCL_SUCCESS) ps_nccl_describe_version(number, version, bytes);
    return PS_OK;
}

static void find_nvidia(machine_info *m)
{
    static const struct {
        const char *name, *file;
        load_nvidia load;
    } all[MACHINE_INFO_NVIDIA] = {{"driver", "libcuda.so.1", load_driver},
                                  {"cuBLASLt", "libcublasLt.so.13", load_cublaslt},
                                  {"cuDNN", "libcudnn.so.9", load_cudnn},
                                  {"NCCL", "libnccl.so.2", load_nccl}};
    char path[4096];
    m->has_nvidia = ps_cuda_is_expected() || ps_plugin_find("cuda", path, sizeof path);
    for (int i = 0; i < MACHINE_INFO_NVIDIA && m->has_nvidia; i++) {
        machine_info_nvidia *n = &m->nvidia[i];
        n->name = all[i].name;
        if (all[i].load(n->version, sizeof n->version) == PS_OK)
            (void)snprintf(n->path, sizeof n->path, "%s", ps_cuda_library_path(all[i].file));
        else
            (void)snprintf(n->reason, sizeof n->reason, "%s", ps_last_error());
    }
}

static void find_plugins(machine_info *m)
{
    static const char *const names[MACHINE_INFO_PLUGINS] = {"openmpi", "mpich", "cuda"};
    char path[4096];
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
        if (ps_plugin_find(names[i], path, sizeof path)) m->plugins[m->n_plugins++] = names[i];
}

ps_status machine_info_find(const char *folder, machine_info *out)
{
    *out = (machine_info){.folder = folder};
    PS_TRY(ps_machine_memory(NULL, &out->memory));
    PS_TRY(ps_cpu_kind_detect(&out->kind));
    ps_machine_cpu_name(NULL, out->processor, sizeof out->processor);
    out->n_cores = ps_machine_cores(NULL);
    find_disk(out);
    find_gpu(out);
    find_nvidia(out);
    find_plugins(out);
    return PS_OK;
}

/* ---- text ---- */

static void show_disk(const machine_info *m)
{
    char free_text[PS_BYTES_TEXT_MAX] = "unknown";
    const ps_disk_stats *s = &m->disk;
    if (m->folder[0] == '\0') return;
    if (!m->is_disk_usable) {
        printf("disk tier           %s: %s\n", m->folder, m->disk_reason);
        return;
    }
    if (m->disk_free_bytes >= 0) (void)ps_bytes_format(m->disk_free_bytes, free_text);
    printf("disk tier           %s: %s%s%s%s, %s, %s free\n", m->folder, s->backend, s->ways[0] ? " (" : "", s->ways,
           s->ways[0] ? ")" : "", s->direct ? "O_DIRECT" : "through the page cache", free_text);
}

static void show_gpu(const machine_info *m)
{
    char total[PS_BYTES_TEXT_MAX], usable[PS_BYTES_TEXT_MAX];
    const ps_cuda_found *f = &m->gpu;
    printf("GPU                 ");
    switch (m->gpu_state) {
    case MACHINE_INFO_NO_GPU: printf("no NVIDIA GPU found\n"); return;
    case MACHINE_INFO_GPU_UNUSABLE: printf("NVIDIA GPU not usable, the CPU computes: %s\n", m->gpu_reason); return;
    case MACHINE_INFO_GPU_USABLE: break;
    }
    if (f->n_gpus > 1) printf("%d; number 0: ", f->n_gpus);
    printf("%s (compute capability %d.%d), %s, of which %s can be used; driver for CUDA %d.%d; attention by %s",
           f->info.name, f->info.capability / 10, f->info.capability % 10, ps_bytes_format(f->info.total_bytes, total),
           ps_bytes_format(f->usable_bytes, usable), f->info.driver_version / 1000, f->info.driver_version % 1000 / 10,
           f->attention);
    if (m->cudnn_reason[0] != '\0') printf(" (%s)", m->cudnn_reason);
    printf("\n");
}

/* A line each: paths are long. */
static void show_nvidia(const machine_info *m)
{
    for (int i = 0; i < MACHINE_INFO_NVIDIA && m->has_nvidia; i++) {
        const machine_info_nvidia *n = &m->nvidia[i];
        char label[24];
        (void)snprintf(label, sizeof label, "NVIDIA %s", n->name);
        if (n->reason[0] != '\0')
            printf("%-20s%s\n", label, n->reason);
        else
            printf("%-20s%s%s%s\n", label, n->version, n->path[0] != '\0' ? ", " : "", n->path);
    }
}

static void show_libraries(const machine_info *m)
{
    library_version libraries[N_LIBRARIES];
    find_libraries(libraries);
    printf("libraries          ");
    for (int i = 0; i < N_LIBRARIES; i++) printf("%s %s %s", i > 0 ? "," : "", libraries[i].name, libraries[i].version);
    printf("%s\n", LINKED_STATICALLY ? "; linked in" : "");
    printf("plug-ins           ");
    for (int i = 0; i < m->n_plugins; i++) printf("%s %s", i > 0 ? "," : "", m->plugins[i]);
    printf("%s\n", m->n_plugins > 0 ? "" : " none");
}

void machine_info_show(const machine_info *m)
{
    char total[PS_BYTES_TEXT_MAX], available[PS_BYTES_TEXT_MAX];
    const ps_cpu_isa isa = m->kind.isa;
    printf("pstar               %d.%d.%d\n", PS_VERSION_MAJOR, PS_VERSION_MINOR, PS_VERSION_PATCH);
    printf("processor           %s, %d cores usable\n", m->processor, m->n_cores);
    printf("instruction set     %s\n", ps_cpu_isa_name(isa));
    printf("processor kind      %s (host.isa in hardware files)\n", ps_cpu_kind_name(&m->kind));
    printf("memory              %s, %s available (within the limits of its control groups)\n",
           ps_bytes_format(m->memory.total_bytes, total), ps_bytes_format(m->memory.available_bytes, available));
    show_disk(m);
    show_gpu(m);
    show_nvidia(m);
    show_libraries(m);
    printf("kernel backends     cuda (NVIDIA GPUs); cpu (%s); ref (plain C, for checking)\n", ps_cpu_isa_name(isa));
    printf("number formats      fp32; bf16, multiplied %s; fp16, multiplied in fp32\n", ps_cpu_bf16_gemms(isa));
}

/* ---- JSON ---- */

static json_t *disk_json(const machine_info *m)
{
    if (m->folder[0] == '\0') return json_null();
    /* JSON is UTF-8, which a path need not be */
    char path[4096], reason[MACHINE_INFO_REASON_BYTES];
    json_t *disk = json_pack("{s:s, s:b}", "path", ps_printable_copy(m->folder, path, sizeof path), "is_usable",
                             m->is_disk_usable);
    if (m->disk_free_bytes >= 0) json_object_set_new(disk, "free_bytes", json_integer(m->disk_free_bytes));
    if (!m->is_disk_usable) {
        json_object_set_new(disk, "error", json_string(ps_printable_copy(m->disk_reason, reason, sizeof reason)));
    } else {
        json_object_set_new(disk, "backend", json_string(m->disk.backend));
        json_object_set_new(disk, "features", json_string(m->disk.ways));
        json_object_set_new(disk, "is_direct", json_boolean(m->disk.direct));
    }
    return disk;
}

static json_t *gpu_json(const machine_info *m)
{
    const ps_cuda_found *f = &m->gpu;
    char capability[24], driver[24];
    if (m->gpu_state == MACHINE_INFO_NO_GPU) return json_null();
    json_t *gpu = json_pack("{s:b}", "is_usable", m->gpu_state == MACHINE_INFO_GPU_USABLE);
    if (m->gpu_state == MACHINE_INFO_GPU_UNUSABLE) {
        json_object_set_new(gpu, "error", json_string(m->gpu_reason));
        return gpu;
    }
    (void)snprintf(capability, sizeof capability, "%d.%d", f->info.capability / 10, f->info.capability % 10);
    (void)snprintf(driver, sizeof driver, "%d.%d", f->info.driver_version / 1000, f->info.driver_version % 1000 / 10);
    json_object_set_new(gpu, "count", json_integer(f->n_gpus));
    json_object_set_new(gpu, "name", json_string(f->info.name));
    json_object_set_new(gpu, "compute_capability", json_string(capability));
    json_object_set_new(gpu, "total_bytes", json_integer(f->info.total_bytes));
    json_object_set_new(gpu, "usable_bytes", json_integer(f->usable_bytes));
    json_object_set_new(gpu, "driver_cuda_version", json_string(driver));
    json_object_set_new(gpu, "attention", json_string(f->attention));
    if (m->cudnn_reason[0] != '\0') json_object_set_new(gpu, "cudnn_error", json_string(m->cudnn_reason));
    return gpu;
}

static json_t *nvidia_json(const machine_info *m)
{
    char text[MACHINE_INFO_REASON_BYTES];
    if (!m->has_nvidia) return json_null();
    json_t *root = json_object();
    for (int i = 0; i < MACHINE_INFO_NVIDIA; i++) {
        const machine_info_nvidia *n = &m->nvidia[i];
        json_t *one =
            n->reason[0] != '\0'
                ? json_pack("{s:s}", "error", ps_printable_copy(n->reason, text, sizeof text))
                : json_pack("{s:s, s:s}", "version", n->version, "path", ps_printable_copy(n->path, text, sizeof text));
        json_object_set_new(root, n->name, one);
    }
    return root;
}

static json_t *libraries_json(void)
{
    library_version libraries[N_LIBRARIES];
    json_t *root = json_object();
    find_libraries(libraries);
    for (int i = 0; i < N_LIBRARIES; i++)
        json_object_set_new(root, libraries[i].name, json_string(libraries[i].version));
    return root;
}

json_t *machine_info_json(const machine_info *m)
{
    char version[40];
    json_t *plugins = json_array();
    (void)snprintf(version, sizeof version, "%d.%d.%d", PS_VERSION_MAJOR, PS_VERSION_MINOR, PS_VERSION_PATCH);
    for (int i = 0; i < m->n_plugins; i++) json_array_append_new(plugins, json_string(m->plugins[i]));
    return json_pack("{s:s, s:{s:s, s:i, s:s, s:s}, s:{s:I, s:I}, s:o, s:o, s:o, s:o, s:b, s:o}", "pstar", version,
                     "processor", "name", m->processor, "cores", m->n_cores, "isa", ps_cpu_isa_name(m->kind.isa),
                     "kind", ps_cpu_kind_name(&m->kind), "memory", "total_bytes", (json_int_t)m->memory.total_bytes,
                     "available_bytes", (json_int_t)m->memory.available_bytes, "disk", disk_json(m), "gpu", gpu_json(m),
                     "nvidia_libraries", nvidia_json(m), "libraries", libraries_json(), "is_linked_statically",
                     LINKED_STATICALLY, "plugins", plugins);
}
