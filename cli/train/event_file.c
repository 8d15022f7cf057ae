#include "event_file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client_file.h"
#include "log_file.h"

#define NAME_BEGIN "events.out.tfevents."
#define NAME_END ".pstar"

enum {
    CRC_TABLE = 256,
    HEADER_BYTES = 12, /* length and its checksum */
    FOOTER_BYTES = 4,
    TAG_BYTES = 128,
};

/* Names have ten digits: readers sort them as texts. */
static const int64_t SECOND_MAX = 9999999999;

struct event_file {
    char folder[CLIENT_FOLDER_MAX];
    log_file file;
    int64_t first_step;    /* of this session: last_step + 1 */
    int64_t latest_second; /* in the names of earlier files: readers go by the order of names */
    uint32_t crc_table[CRC_TABLE];
};

/* ---- bytes ---- */

/* Bytes of a message under way. A failure of memory is kept, and reported at the end. */
typedef struct bytes {
    char *data;
    size_t n, capacity;
    ps_status st;
} bytes;

static void put_bytes(bytes *b, const void *data, size_t n)
{
    if (b->st == PS_OK && b->n + n > b->capacity) {
        const size_t capacity = 2 * (b->n + n);
        b->st = client_reserve(&b->data, (int64_t)capacity, 1);
        if (b->st == PS_OK) b->capacity = capacity;
    }
    if (b->st != PS_OK) return;
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_little_endian(bytes *b, uint64_t value, size_t n)
{
    unsigned char out[8];
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)(value >> 8 * i);
    put_bytes(b, out, n);
}

static uint64_t little_endian(const char *at, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) value |= (uint64_t)(unsigned char)at[i] << 8 * i;
    return value;
}

/* ---- protobuf: developers.google.com/protocol-buffers/docs/encoding ---- */

typedef enum wire_type { WIRE_VARINT, WIRE_64_BITS, WIRE_BYTES, WIRE_32_BITS = 5 } wire_type;

static void put_varint(bytes *b, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) put_little_endian(b, (value & 0x7f) | 0x80, 1);
    put_little_endian(b, value, 1);
}

static void put_key(bytes *b, unsigned field, wire_type type)
{
    put_varint(b, field << 3 | (unsigned)type);
}

static void put_integer(bytes *b, unsigned field, int64_t value)
{
    put_key(b, field, WIRE_VARINT);
    put_varint(b, (uint64_t)value);
}

static void put_double(bytes *b, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, WIRE_64_BITS);
    put_little_endian(b, bits, sizeof bits);
}

static void put_float(bytes *b, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, WIRE_32_BITS);
    put_little_endian(b, bits, sizeof bits);
}

static void put_field(bytes *b, unsigned field, const void *data, size_t n)
{
    put_key(b, field, WIRE_BYTES);
    put_varint(b, n);
    put_bytes(b, data, n);
}

/* A message within another one; it is emptied. */
static void put_message(bytes *b, unsigned field, bytes *message)
{
    if (b->st == PS_OK) b->st = message->st;
    put_field(b, field, message->data, message->n);
    free(message->data);
    *message = (bytes){0};
}

/* ---- messages ---- */

enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7,
    SESSION_LOG_STATUS = 1,
    SESSION_LOG_START = 1,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE_VALUE = 2,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,
    METADATA_PLUGIN_DATA = 1,
    PLUGIN_NAME = 1,
    TENSOR_DTYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_STRING_VAL = 8,
    SHAPE_DIM = 2,
    DIM_SIZE = 1,
    DT_STRING = 7,
};

static bytes begin_event(int64_t step)
{
    bytes event = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    put_double(&event, EVENT_WALL_TIME, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    put_integer(&event, EVENT_STEP, step);
    return event;
}

static void put_scalar(bytes *summary, const char *tag, double number)
{
    bytes value = {0};
    put_field(&value, VALUE_TAG, tag, strlen(tag));
    put_float(&value, VALUE_SIMPLE_VALUE, (float)number);
    put_message(summary, SUMMARY_VALUE, &value);
}

/* A tensor of one string, for TensorBoard's text plugin. */
static void put_text(bytes *summary, const char *tag, const char *text, size_t n)
{
    static const char plugin[] = "text";
    bytes value = {0}, metadata = {0}, data = {0}, tensor = {0}, shape = {0}, dim = {0};
    put_field(&value, VALUE_TAG, tag, strlen(tag));
    put_field(&data, PLUGIN_NAME, plugin, sizeof plugin - 1);
    put_message(&metadata, METADATA_PLUGIN_DATA, &data);
    put_message(&value, VALUE_METADATA, &metadata);
    put_integer(&tensor, TENSOR_DTYPE, DT_STRING);
    put_integer(&dim, DIM_SIZE, 1);
    put_message(&shape, SHAPE_DIM, &dim);
    put_message(&tensor, TENSOR_SHAPE, &shape);
    put_field(&tensor, TENSOR_STRING_VAL, text, n);
    put_message(&value, VALUE_TENSOR, &tensor);
    put_message(summary, SUMMARY_VALUE, &value);
}

/* ---- records ---- */

/* CRC-32C (RFC 3720, appendix B.4), byte by byte: an event has some hundred bytes. */
static void init_crc_table(uint32_t table[CRC_TABLE])
{
    for (uint32_t b = 0; b < CRC_TABLE; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
        table[b] = crc;
    }
}

static uint32_t masked_crc(const uint32_t table[CRC_TABLE], const char *data, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) crc = crc >> 8 ^ table[(crc ^ (unsigned char)data[i]) & 0xff];
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Write an event as a record, and free it. */
static ps_status put_record(event_file *f, bytes *event)
{
    bytes record = {0};
    ps_status st = event->st;
    if (st == PS_OK) {
        put_little_endian(&record, event->n, 8);
        put_little_endian(&record, record.st == PS_OK ? masked_crc(f->crc_table, record.data, 8) : 0, 4);
        put_bytes(&record, event->data, event->n);
        put_little_endian(&record, masked_crc(f->crc_table, event->data, event->n), 4);
        st = record.st != PS_OK ? record.st : log_file_put(&f->file, record.data, record.n);
    }
    free(record.data);
    free(event->data);
    return st;
}

/* ---- files of earlier processes ---- */

/* The number after NAME_BEGIN, SECOND_MAX for a larger one, which no clock has written; -1: not a file of pstar. */
static int64_t second_of(const char *name)
{
    const size_t n = strlen(name), n_begin = strlen(NAME_BEGIN), n_end = strlen(NAME_END);
    if (n < n_begin + n_end || strncmp(name, NAME_BEGIN, n_begin) != 0 || strcmp(name + n - n_end, NAME_END) != 0)
        return -1;
    char *end;
    const long long second = strtoll(name + n_begin, &end, 10); /* LLONG_MAX beyond it */
    return *end == '.' && second >= 0 ? min_i64(second, SECOND_MAX) : -1;
}

static bool take_varint(const char **at, const char *end, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        const unsigned char byte = (unsigned char)*(*at)++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* The step of an event that this file writes, where it stands after the time; INT64_MAX: not such an event. */
static int64_t step_of(const char *event, size_t n)
{
    const char *at = event + 9, *end = event + n;
    uint64_t step;
    if (n < 11 || event[0] != (EVENT_WALL_TIME << 3 | WIRE_64_BITS) || *at++ != (EVENT_STEP << 3 | WIRE_VARINT) ||
        !take_varint(&at, end, &step) || step > INT64_MAX)
        return INT64_MAX;
    return (int64_t)step;
}

/* Keep the complete events of steps up to last_step. That of a checkpoint comes after those of later steps. */
static log_kept keep_steps(const uint32_t table[CRC_TABLE], char *text, size_t n_bytes, int64_t last_step)
{
    log_kept kept = {0};
    for (size_t at = 0; n_bytes - at >= HEADER_BYTES + FOOTER_BYTES;) {
        const char *record = text + at, *event = record + HEADER_BYTES;
        const uint64_t n = little_endian(record, 8);
        if (little_endian(record + 8, 4) != masked_crc(table, record, 8)) break;
        if (n > n_bytes - at - HEADER_BYTES - FOOTER_BYTES) break;
        if (little_endian(event + n, 4) != masked_crc(table, event, (size_t)n)) break;
        const size_t n_record = HEADER_BYTES + (size_t)n + FOOTER_BYTES;
        if (step_of(event, (size_t)n) <= last_step) log_kept_add(&kept, text, (int64_t)at, (int64_t)n_record);
        at += n_record;
    }
    return kept;
}

/* Drop the events of later steps; nothing is left without the steps, and the file goes. */
static ps_status cut_file(const uint32_t table[CRC_TABLE], const char *path, int64_t last_step)
{
    char *text = NULL;
    size_t n = 0;
    ps_status st = PS_OK;
    log_file f;
    log_file_init(&f);
    snprintf(f.path, sizeof f.path, "%s", path);
    TRY_GOTO(client_read_file(path, &text, &n));
    const log_kept kept = last_step > 0 ? keep_steps(table, text, n, last_step) : (log_kept){0};
    if (kept.n_bytes > 0 && kept.n_in_place == (int64_t)n) goto out;
    if (kept.n_bytes == 0) {
        if (unlink(path) != 0)
            st = client_fail(PS_EIO, "cannot remove %s, which an earlier run left: %s", path, strerror(errno));
        goto out;
    }
    TRY_GOTO(log_file_open_kept(&f, text, &kept));
    st = log_file_flush(&f);
out:
    log_file_close(&f);
    free(text);
    return st;
}

/* Cut each event file of pstar in the folder; *latest is the largest number in their names, -1: none. */
static ps_status cut_files(const uint32_t table[CRC_TABLE], const char *folder, int64_t last_step, int64_t *latest)
{
    ps_status st = PS_OK;
    char path[sizeof((log_file *)NULL)->path];
    DIR *dir = opendir(folder);
    *latest = -1;
    if (dir == NULL && errno == ENOENT) return PS_OK;
    if (dir == NULL) return client_fail(PS_EIO, "cannot read the folder %s: %s", folder, strerror(errno));
    for (const struct dirent *entry; st == PS_OK && (entry = readdir(dir)) != NULL;) {
        const int64_t second = second_of(entry->d_name);
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (second < 0 || lstat(path, &info) != 0 || !S_ISREG(info.st_mode)) continue;
        *latest = max_i64(*latest, second);
        st = cut_file(table, path, last_step);
    }
    closedir(dir);
    return st;
}

ps_status event_file_cut_all(const char *folder, int64_t last_step)
{
    int64_t latest;
    uint32_t table[CRC_TABLE];
    init_crc_table(table);
    return cut_files(table, folder, last_step, &latest);
}

/* ---- the file ---- */

ps_status event_file_open(const char *folder, int64_t last_step, event_file **out)
{
    event_file *f = NULL;
    ps_status st = PS_OK;
    *out = NULL;
    TRY(client_alloc(1, sizeof *f, &f));
    log_file_init(&f->file);
    init_crc_table(f->crc_table);
    snprintf(f->folder, sizeof f->folder, "%s", folder);
    f->first_step = last_step + 1;
    TRY_GOTO(cut_files(f->crc_table, folder, last_step, &f->latest_second));
    *out = f;
    f = NULL;
out:
    event_file_close(f);
    return st;
}

void event_file_close(event_file *f)
{
    if (f == NULL) return;
    log_file_close(&f->file);
    free(f);
}

/* The event that begins every file, and that of a session that goes on. */
static ps_status begin_file(event_file *f)
{
    static const char version[] = "brain.Event:2";
    char host[65] = "";
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') snprintf(host, sizeof host, "localhost");
    const int64_t second = min_i64(max_i64((int64_t)time(NULL), f->latest_second + 1), SECOND_MAX);
    snprintf(f->file.path, sizeof f->file.path, "%.*s/%s%010lld.%s.%ld%s", CLIENT_FOLDER_MAX - 1, f->folder, NAME_BEGIN,
             (long long)second, host, (long)getpid(), NAME_END);
    TRY(log_file_open(&f->file, 0, true));
    bytes event = begin_event(0), log = {0};
    put_field(&event, EVENT_FILE_VERSION, version, sizeof version - 1);
    TRY(put_record(f, &event));
    if (f->first_step == 1) return PS_OK;
    event = begin_event(f->first_step);
    put_integer(&log, SESSION_LOG_STATUS, SESSION_LOG_START);
    put_message(&event, EVENT_SESSION_LOG, &log);
    return put_record(f, &event);
}

/* ---- lines ---- */

/* The tag of a key of metrics.jsonl; a key without one is train/KEY. */
static void find_tag(const char *key, char tag[TAG_BYTES])
{
    static const struct {
        const char *key, *tag;
    } tags[] = {
        {"lr", "train/learning_rate"},
        {"eval_loss", "eval/loss"},
        {"step_s", "speed/step_s"},
        {"tokens", "speed/tokens"},
        {"tokens_per_s", "speed/tokens_per_s"},
        {"padding", "speed/padding"},
        {"wait_s", "speed/wait_s"},
        {"device_peak_bytes", "memory/device_peak_bytes"},
        {"host_peak_bytes", "memory/host_peak_bytes"},
        {"disk_peak_bytes", "memory/disk_peak_bytes"},
        {"moved_bytes", "transfer/moved_bytes"},
        {"host_to_device_bytes", "transfer/host_to_device_bytes"},
        {"device_to_host_bytes", "transfer/device_to_host_bytes"},
        {"disk_read_bytes", "transfer/disk_read_bytes"},
        {"disk_write_bytes", "transfer/disk_write_bytes"},
        {"checkpoint", "checkpoint/name"},
        {"bytes", "checkpoint/bytes"},
        {"seconds", "checkpoint/seconds"},
        {"stall_s", "checkpoint/stall_s"},
        {"checkpoint_error", "checkpoint/error"},
    };
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (strcmp(key, tags[i].key) != 0) continue;
        snprintf(tag, TAG_BYTES, "%s", tags[i].tag);
        return;
    }
    snprintf(tag, TAG_BYTES, "train/%s", key);
}

/* null is a number that is not finite, which JSON does not have. */
static void put_value(bytes *summary, const char *tag, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_REAL:
    case JSON_INTEGER: put_scalar(summary, tag, json_number_value(value)); break;
    case JSON_TRUE: put_scalar(summary, tag, 1); break;
    case JSON_FALSE: put_scalar(summary, tag, 0); break;
    case JSON_NULL: put_scalar(summary, tag, NAN); break;
    case JSON_STRING: put_text(summary, tag, json_string_value(value), json_string_length(value)); break;
    case JSON_OBJECT:
    case JSON_ARRAY: break; /* "ranks", which has its own tags */
    }
}

static void put_ranks(bytes *summary, json_t *ranks)
{
    size_t r;
    json_t *rank, *value;
    const char *key;
    char tag[TAG_BYTES];
    json_array_foreach(ranks, r, rank)
    {
        json_object_foreach(rank, key, value)
        {
            snprintf(tag, sizeof tag, "rank_%zu/%s", r, key);
            put_value(summary, tag, value);
        }
    }
}

ps_status event_file_put(event_file *f, json_t *line)
{
    const char *key;
    char tag[TAG_BYTES];
    json_t *value;
    if (f->file.fd < 0) TRY(begin_file(f));
    bytes event = begin_event(json_integer_value(json_object_get(line, "step"))), summary = {0};
    json_object_foreach(line, key, value)
    {
        if (strcmp(key, "step") == 0) continue;
        find_tag(key, tag);
        put_value(&summary, tag, value);
    }
    put_ranks(&summary, json_object_get(line, "ranks"));
    put_message(&event, EVENT_SUMMARY, &summary);
    return put_record(f, &event);
}

ps_status event_file_flush(event_file *f)
{
    return log_file_flush(&f->file);
}
