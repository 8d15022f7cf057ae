/* settings_memory.c - budgets of the tiers: from memory.total, from one of memory.device and memory.host, or from the
 * machine's memory. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/machine.h"
#include "train/settings/settings_impl.h"

#define MB ((int64_t)1000000)

/* ---- memory of the process outside of tiers ---- */

/* The program, its libraries and its data are counted in these steps. */
#define RESIDENT_STEP_BYTES (8 * MB)
/* Minimum for a program without data; with less, a plan for it made by a process without data would differ. */
#define RESIDENT_LEAST_BYTES (16 * MB)
/* Plans, buffers of files, rows of samples; memory that malloc does not return. */
#define GROWTH_BYTES (16 * MB)
#define THREAD_BYTES (MB / 4) /* touched part of its stack */

int64_t ps_settings_process_bytes(int64_t resident_bytes, int threads)
{
    return ps_max_i64(RESIDENT_LEAST_BYTES, ps_round_up(resident_bytes, RESIDENT_STEP_BYTES)) + GROWTH_BYTES +
           threads * THREAD_BYTES;
}

/* ---- budgets of RAM ---- */

/* The inputs of budgets, on this machine or another. */
typedef struct source {
    bool is_gpu;
    bool is_unified_memory; /* device and host tier are both RAM */
    double available;       /* RAM: of the machine, or of a described device's share of its node */
    int64_t gpu_bytes;      /* device tier of a GPU, if the configuration leaves it open */
    int64_t process_bytes;  /* as of ps_settings_process_bytes */
} source;

/* Is there model data that the host works on, regardless of the device's size? */
static bool needs_host(const ps_settings *s)
{
    return s->embedding_on_host || (s->training && !s->hybrid_updates);
}

void ps_settings_split(const ps_settings *s, int64_t bytes, ps_budgets *out)
{
    out->bytes[PS_TIER_HOST] = needs_host(s) ? bytes / 2 : 0;
    out->bytes[PS_TIER_DEVICE] = bytes - out->bytes[PS_TIER_HOST];
}

/* The configuration gives one of the two, and leaves the other open. */
static void split_given(ps_settings *s, ps_tier given, int64_t bytes)
{
    ps_settings_split(s, bytes, &s->budgets);
    s->memory.split = given;
}

static ps_status check_host(const ps_settings *s)
{
    if (s->budgets.bytes[PS_TIER_HOST] > 0 || !needs_host(s)) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "%s needs a host tier, and memory.host is 0: give it memory, or leave both memory.device and "
                   "memory.host out",
                   s->embedding_on_host ? "use_cpu_embedding" : "optimizer.params.use_hybrid_adam = false");
}

ps_status ps_settings_check_total(const ps_settings *s)
{
    char total[PS_BYTES_TEXT_MAX], process[PS_BYTES_TEXT_MAX], least[PS_BYTES_TEXT_MAX];
    const int64_t least_bytes = ps_round_up(s->memory.process_bytes + 2 * GROWTH_BYTES, MB);
    if (!ps_settings_is_total_used_up(s)) return PS_OK;
    return PS_FAIL(PS_EBUDGET,
                   "memory.total = %s: the process itself takes %s (the program, its libraries, data that it holds, "
                   "buffers), and chunks and activations come on top: give it at least memory.total=%s",
                   ps_bytes_format(s->memory.total_bytes, total), ps_bytes_format(s->memory.process_bytes, process),
                   ps_bytes_round_up(least_bytes, least));
}

static ps_status refuse_both(const ps_options *o)
{
    char total[PS_BYTES_TEXT_MAX], tier[PS_BYTES_TEXT_MAX];
    const bool has_device = o->memory_device != PS_BYTES_AUTO;
    const char *name = has_device ? "memory.device" : "memory.host";
    return PS_FAIL(
        PS_EINVAL,
        "memory.total = %s and %s = %s: on a processor both say how much RAM there is; leave one of them out "
        "(%s=auto on the command line takes a file's back)",
        ps_bytes_format(o->memory_total, total), name,
        ps_bytes_format(has_device ? o->memory_device : o->memory_host, tier), name);
}

static ps_status use_total(const ps_options *o, const source *from, ps_settings *s)
{
    int64_t *b = s->budgets.bytes;
    char total[PS_BYTES_TEXT_MAX], process[PS_BYTES_TEXT_MAX], host[PS_BYTES_TEXT_MAX];
    if (!from->is_gpu && (o->memory_device != PS_BYTES_AUTO || o->memory_host != PS_BYTES_AUTO)) return refuse_both(o);
    /* with next to nothing the plan is refused, which names what process and model need together */
    const int64_t rest = ps_max_i64(s->memory.total_bytes - s->memory.process_bytes, PS_RAM_TIER_COUNT);
    if (!from->is_gpu) {
        ps_settings_split(s, rest, &s->budgets);
        return PS_OK;
    }
    PS_TRY(ps_settings_check_total(s)); /* the model may fit on the GPU alone */
    b[PS_TIER_DEVICE] = o->memory_device != PS_BYTES_AUTO ? o->memory_device : from->gpu_bytes;
    b[PS_TIER_HOST] = o->memory_host != PS_BYTES_AUTO ? o->memory_host : rest;
    if (b[PS_TIER_HOST] <= rest) return PS_OK;
    return PS_FAIL(PS_EBUDGET,
                   "memory.total = %s: the process itself takes %s, and memory.host = %s does not fit into the rest: "
                   "raise memory.total, lower memory.host, or leave it out",
                   ps_bytes_format(o->memory_total, total), ps_bytes_format(s->memory.process_bytes, process),
                   ps_bytes_format(o->memory_host, host));
}

/* A GPU, or a simulated one: its memory is separate from the host's. */
static void use_tiers(const ps_options *o, const source *from, ps_settings *s)
{
    int64_t *b = s->budgets.bytes;
    const double ratio = o->client_mem_tracer_overall_cpu_mem_ratio;
    b[PS_TIER_DEVICE] = o->memory_device != PS_BYTES_AUTO ? o->memory_device : from->gpu_bytes;
    b[PS_TIER_HOST] = o->memory_host != PS_BYTES_AUTO ? o->memory_host : (int64_t)(from->available * ratio);
    s->memory.is_share[PS_TIER_HOST] = o->memory_host == PS_BYTES_AUTO;
}

/* A processor's RAM that the configuration leaves open, wholly or in part. */
static void use_share(const ps_options *o, const source *from, ps_settings *s)
{
    int64_t *b = s->budgets.bytes;
    const bool leaves_device = o->memory_device == PS_BYTES_AUTO, leaves_host = o->memory_host == PS_BYTES_AUTO;
    const bool halves = leaves_device && leaves_host && needs_host(s);
    const double available = halves ? from->available / 2 : from->available;
    const double rest = from->available - (double)ps_max_i64(o->memory_device, 0);
    if (leaves_device) b[PS_TIER_DEVICE] = (int64_t)(available * o->client_mem_tracer_overall_gpu_mem_ratio);
    if (leaves_host) {
        const double of = leaves_device ? (halves ? available : 0) : rest > 0 ? rest : 0;
        b[PS_TIER_HOST] = (int64_t)(of * o->client_mem_tracer_overall_cpu_mem_ratio);
    }
    s->memory.is_share[PS_TIER_DEVICE] = leaves_device;
    s->memory.is_share[PS_TIER_HOST] = leaves_host;
}

/* Does a budget depend on what the machine has available? */
static bool asks_machine(const ps_options *o, bool is_gpu, bool is_unified_memory)
{
    if (o->memory_total != PS_BYTES_AUTO) return false;
    if (is_gpu) return o->memory_host == PS_BYTES_AUTO;
    if (is_unified_memory && (o->memory_device != PS_BYTES_AUTO || o->memory_host > 0)) return false;
    return o->memory_device == PS_BYTES_AUTO || o->memory_host == PS_BYTES_AUTO;
}

static ps_status use_ram(const ps_options *o, const source *from, ps_settings *s)
{
    int64_t *b = s->budgets.bytes;
    ps_settings_memory *m = &s->memory;
    const bool gives_tiers = o->memory_device != PS_BYTES_AUTO || o->memory_host != PS_BYTES_AUTO;
    m->limit_kind = o->memory_total != PS_BYTES_AUTO ? PS_LIMIT_TOTAL : gives_tiers ? PS_LIMIT_TIERS : PS_LIMIT_MACHINE;
    m->total_bytes = m->limit_kind == PS_LIMIT_TOTAL ? o->memory_total : 0;
    m->process_bytes = from->process_bytes;
    m->available_bytes = (int64_t)from->available;
    memset(m->is_share, 0, sizeof m->is_share);
    m->split = PS_TIER_COUNT;
    b[PS_TIER_DEVICE] = o->memory_device;
    b[PS_TIER_HOST] = o->memory_host;
    if (m->limit_kind == PS_LIMIT_TOTAL)
        PS_TRY(use_total(o, from, s));
    else if (from->is_gpu)
        use_tiers(o, from, s);
    else if (asks_machine(o, false, from->is_unified_memory))
        use_share(o, from, s);
    else if (o->memory_host == PS_BYTES_AUTO)
        split_given(s, PS_TIER_DEVICE, o->memory_device);
    else if (o->memory_device == PS_BYTES_AUTO)
        split_given(s, PS_TIER_HOST, o->memory_host);
    if (o->zero_tensor_placement_policy == PS_CONFIG_PLACEMENT_CUDA) b[PS_TIER_HOST] = 0;
    return PS_OK;
}

int64_t ps_settings_total_for(const ps_settings *s, int64_t device_bytes, int64_t host_bytes)
{
    const int64_t both = needs_host(s) ? 2 * ps_max_i64(device_bytes, host_bytes) : device_bytes + host_bytes;
    return ps_round_up((ps_settings_has_gpu(s) ? host_bytes : both) + s->memory.process_bytes + RESIDENT_STEP_BYTES,
                       MB);
}

bool ps_settings_is_total_used_up(const ps_settings *s)
{
    return s->memory.limit_kind == PS_LIMIT_TOTAL && s->memory.total_bytes <= s->memory.process_bytes;
}

bool ps_settings_is_total(const ps_settings *s)
{
    return s->memory.limit_kind == PS_LIMIT_TOTAL && !ps_settings_has_gpu(s);
}

int64_t ps_settings_save_buffer_bytes(const ps_settings *s)
{
    if (s->save_buffer_bytes == PS_BYTES_AUTO) return 8 * PS_MIB;
    return s->save_buffer_bytes > 0 ? ps_max_i64(16 * PS_KIB, s->save_buffer_bytes) : 0;
}

/* ---- the disk ---- */

static const char usual_folder[] = "/var/tmp";

static bool leaves_disk(const ps_options *o)
{
    return o->memory_disk == PS_BYTES_AUTO && o->memory_device == PS_BYTES_AUTO && o->memory_host == PS_BYTES_AUTO;
}

/* The folder of a disk tier used if RAM does not suffice, when memory.disk_path is not set: not where files are in
 * RAM. */
static void choose_folder(const char *wanted, ps_settings *s)
{
    ps_settings_memory *m = &s->memory;
    const ps_disk_folder_kind kind = ps_disk_folder_look(wanted);
    const char *why =
        kind == PS_DISK_FOLDER_IS_RAM ? "lies on tmpfs or ramfs, which is RAM itself" : "cannot be written";
    if (kind == PS_DISK_FOLDER_GOOD && strlen(wanted) < sizeof s->tiers.disk_folders) {
        strcpy(s->tiers.disk_folders, wanted);
        return;
    }
    snprintf(m->disk_note, sizeof m->disk_note, "%.180s %s", wanted, why);
    strcpy(s->tiers.disk_folders, usual_folder);
    if (ps_disk_folder_look(usual_folder) != PS_DISK_FOLDER_GOOD) m->spare_disk_bytes = 0;
}

const char *ps_settings_likely_disk_folders(const ps_config *config)
{
    const ps_options *o = ps_config_options(config);
    if (!leaves_disk(o) || o->memory_disk_path[0] != '\0') return ps_tier_options_disk_folders(o);
    const char *wanted = ps_config_disk_folder(config);
    return ps_disk_folder_look(wanted) == PS_DISK_FOLDER_GOOD ? wanted : usual_folder;
}

static ps_status read_disk(const ps_config *config, ps_settings *s)
{
    const ps_options *o = ps_config_options(config);
    ps_settings_memory *m = &s->memory;
    int64_t free_bytes = 0;
    s->budgets.bytes[PS_TIER_DISK] = o->memory_disk;
    if (o->memory_disk != PS_BYTES_AUTO) return PS_OK;
    const bool on_demand = leaves_disk(o);
    m->spare_disk_bytes = 1;
    if (on_demand && o->memory_disk_path[0] == '\0') choose_folder(ps_config_disk_folder(config), s);
    if (m->spare_disk_bytes > 0) {
        const ps_status st = ps_disk_folders_free_bytes(s->tiers.disk_folders, &free_bytes);
        if (st != PS_OK && !on_demand) return st; /* a disk that is not needed may be missing */
    }
    m->is_share[PS_TIER_DISK] = true;
    m->spare_disk_bytes = on_demand ? free_bytes / 5 * 4 : 0;
    s->budgets.bytes[PS_TIER_DISK] = on_demand ? 0 : (int64_t)((double)free_bytes * 0.8);
    return PS_OK;
}

bool ps_settings_take_spare_disk(ps_settings *s)
{
    if (s->memory.spare_disk_bytes <= 0 || s->memory.uses_spare_disk) return false;
    s->budgets.bytes[PS_TIER_DISK] = s->memory.spare_disk_bytes;
    s->memory.uses_spare_disk = true;
    return true;
}

/* ---- text ---- */

/* The text for the memory of RAM; its length. */
static int describe_ram(const ps_settings *s, char *text, size_t n)
{
    const ps_settings_memory *m = &s->memory;
    char tiers[PS_BYTES_TEXT_MAX], whole[PS_BYTES_TEXT_MAX], process[PS_BYTES_TEXT_MAX];
    const bool is_gpu = s->backend_kind == PS_BACKEND_CUDA;
    const int64_t *b = s->budgets.bytes;
    if (m->limit_kind == PS_LIMIT_TIERS) return 0;
    ps_bytes_format(b[PS_TIER_HOST] + (is_gpu ? 0 : b[PS_TIER_DEVICE]), tiers);
    if (m->limit_kind == PS_LIMIT_TOTAL)
        return snprintf(text, n, "memory.total %s: %s for %s, %s for the process itself",
                        ps_bytes_format(m->total_bytes, whole), tiers,
                        is_gpu ? "chunks on the host" : "chunks and activations",
                        ps_bytes_format(m->process_bytes, process));
    return snprintf(text, n, "memory.total auto: %s for %s, of %s that the machine has available", tiers,
                    is_gpu ? "chunks on the host" : "chunks and activations",
                    ps_bytes_format(m->available_bytes, whole));
}

const char *ps_settings_describe_memory(const ps_settings *s, char text[PS_SETTINGS_MEMORY_TEXT_MAX])
{
    const ps_settings_memory *m = &s->memory;
    char disk[PS_BYTES_TEXT_MAX];
    text[0] = '\0';
    const int length = describe_ram(s, text, PS_SETTINGS_MEMORY_TEXT_MAX);
    if (!m->is_share[PS_TIER_DISK] || m->limit_kind == PS_LIMIT_TIERS) return text;
    const size_t room = PS_SETTINGS_MEMORY_TEXT_MAX - (size_t)length;
    if (!m->uses_spare_disk)
        snprintf(text + length, room, "\nmemory.disk auto: 0, as model data fits in RAM");
    else
        snprintf(text + length, room,
                 "\nmemory.disk auto: at most %s in %.300s, as model data does not fit in RAM%s%s%s",
                 ps_bytes_format(s->budgets.bytes[PS_TIER_DISK], disk), s->tiers.disk_folders,
                 m->disk_note[0] != '\0' ? " (" : "", m->disk_note, m->disk_note[0] != '\0' ? ")" : "");
    return text;
}

/* ---- this machine ---- */

static source source_of(const ps_settings *s)
{
    return (source){.is_gpu = s->backend_kind == PS_BACKEND_CUDA, .is_unified_memory = !ps_settings_has_gpu(s)};
}

static ps_status use_source(const ps_config *config, const source *from, ps_settings *s)
{
    s->memory.status = use_ram(ps_config_options(config), from, s);
    if (s->memory.status != PS_OK) snprintf(s->memory.why_not, sizeof s->memory.why_not, "%s", ps_last_error());
    PS_TRY(read_disk(config, s));
    return s->memory.status == PS_OK ? check_host(s) : PS_OK;
}

ps_status ps_settings_read_budgets(const ps_config *config, ps_settings *s)
{
    const ps_options *o = ps_config_options(config);
    source from = source_of(s);
    if (asks_machine(o, from.is_gpu, from.is_unified_memory)) {
        ps_machine_memory_info memory;
        PS_TRY(ps_machine_memory(NULL, &memory));
        from.available = (double)memory.available_bytes;
    }
    ps_machine_rss_info rss = {0};
    if (o->memory_total != PS_BYTES_AUTO) PS_TRY(ps_machine_rss(NULL, &rss));
    from.process_bytes = ps_settings_process_bytes(rss.resident_bytes, s->threads);
    if (from.is_gpu && o->memory_device == PS_BYTES_AUTO) from.gpu_bytes = ps_settings_gpu_bytes(s, o);
    return use_source(config, &from, s);
}

ps_status ps_settings_change_budgets(const ps_config *config, ps_settings *s)
{
    source from = source_of(s);
    from.available = (double)s->memory.available_bytes;
    from.process_bytes = s->memory.process_bytes;
    from.gpu_bytes = s->budgets.bytes[PS_TIER_DEVICE]; /* used if it is "auto" */
    s->memory.spare_disk_bytes = 0;
    s->memory.uses_spare_disk = false;
    s->memory.disk_note[0] = '\0';
    PS_TRY(use_source(config, &from, s));
    PS_TRY(ps_settings_check_memory(s));
    ps_settings_share_memory(s, s->throughput.topology.ranks_per_node);
    return PS_OK;
}

ps_status ps_settings_check_memory(const ps_settings *s)
{
    return s->memory.status == PS_OK ? PS_OK : PS_FAIL(s->memory.status, "%s", s->memory.why_not);
}

void ps_settings_share_memory(ps_settings *s, int32_t here)
{
    for (int t = 0; t < PS_TIER_COUNT; t++)
        if (s->memory.is_share[t]) s->budgets.bytes[t] /= here;
    if (s->memory.is_share[PS_TIER_DISK]) s->memory.spare_disk_bytes /= here;
}

ps_status ps_settings_agree_on_memory(ps_settings *s, ps_comm *comm)
{
    double least[PS_TIER_COUNT + 1];
    int64_t *const all[PS_TIER_COUNT + 1] = {&s->budgets.bytes[PS_TIER_DEVICE], &s->budgets.bytes[PS_TIER_HOST],
                                             &s->budgets.bytes[PS_TIER_DISK], &s->memory.spare_disk_bytes};
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) least[i] = (double)*all[i];
    PS_TRY(ps_comm_all_reduce(comm, least, (int32_t)PS_ARRAY_LEN(all), PS_COMM_MIN));
    for (size_t i = 0; i < PS_ARRAY_LEN(all); i++) *all[i] = ps_min_i64(*all[i], (int64_t)least[i]);
    return PS_OK;
}

/* ---- machines that are described ---- */

ps_status ps_settings_use_memory(ps_settings *s, const ps_options *o, const ps_hardware *hw)
{
    const int64_t per_node = ps_hardware_devices_per_node(hw);
    const bool is_gpu = hw->gpus_per_node > 0;
    const double device = (double)ps_hardware_device_bytes(hw);
    const double host = (double)ps_hardware_host_bytes(hw) / (double)per_node;
    const source from = {.is_gpu = is_gpu,
                         .is_unified_memory = !is_gpu,
                         .available = host,
                         .gpu_bytes = (int64_t)(device * o->client_mem_tracer_overall_gpu_mem_ratio),
                         .process_bytes = ps_settings_process_bytes(0, s->threads)};
    s->memory.status = PS_OK; /* that was of this machine */
    PS_TRY(use_ram(o, &from, s));
    if (o->memory_disk != PS_BYTES_AUTO) return PS_OK;
    const int64_t disk = hw->disk.present ? hw->disk.bytes / per_node : 0;
    s->memory.is_share[PS_TIER_DISK] = true;
    s->memory.uses_spare_disk = false;
    s->memory.spare_disk_bytes = leaves_disk(o) ? disk : 0;
    s->budgets.bytes[PS_TIER_DISK] = leaves_disk(o) ? 0 : disk;
    return PS_OK;
}
