#include "settings/products.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/machine.h"
#include "base/mem.h"
#include "comm/agree.h"

/* Another run that writes the file at the same time takes milliseconds. */
#define LOCK_SECONDS 5.0

enum { PATH_BYTES = PS_SETTINGS_FOLDER_BYTES + 256 };

static double seconds_since(int64_t begin_ns)
{
    return (double)(ps_clock_ns() - begin_ns) * 1e-9;
}

/* ---- which products there are ---- */

/* Where arrays would lie: addresses that nobody touches, aligned as chunks and the region for activations are. */
#define REGION_ADDRESS ((char *)((uintptr_t)1 << 40))
#define PARAM_ADDRESS ((void *)((uintptr_t)2 << 40))
#define GRAD_ADDRESS ((void *)((uintptr_t)3 << 40))

typedef struct pass {
    const ps_settings *settings;
    const ps_code *code;
    ps_backend *lister;
    bool is_training;
    bool adds; /* to the gradients of an earlier micro-batch */
} pass;

/* As the runner binds it. */
static ps_status list_instr(const pass *p, const ps_instr *instr)
{
    const ps_settings *s = p->settings;
    const ps_node *n = &p->code->program->nodes[instr->node];
    const bool is_backward = instr->kind == PS_INSTR_BACKWARD;
    ps_node_run run = {.mode = PS_RUN_COMPUTE,
                       .backend = p->lister,
                       .dtype = s->dtype,
                       .B = p->code->program->B,
                       .T = p->code->program->T,
                       .node = n,
                       .training = p->is_training,
                       .targets = {.n = 1, .weight = 1},
                       .loss_scale = 1,
                       .output_row = -1,
                       .grad_dtype = s->dtype};
    ps_code_bind(p->code, instr, REGION_ADDRESS, &run);
    run.output = NULL;
    run.accumulate_dw = instr->accumulate_dw || p->adds;
    for (int k = 0; k < PS_NODE_PARAMS; k++) {
        const int32_t w = n->params[k];
        if (w < 0) continue;
        if (!is_backward || n->type->backward_reads_w[k]) run.w[k] = PARAM_ADDRESS;
        if (!is_backward) continue;
        run.dw[k] = GRAD_ADDRESS;
        run.grad_dtype = p->code->grad_overwrites_param[w] ? s->dtype : PS_DTYPE_F32;
    }
    return is_backward ? n->type->backward(&run) : n->type->forward(&run);
}

static ps_status list_pass(const pass *p)
{
    const int32_t n = p->is_training ? p->code->n_instrs : p->code->n_forward;
    for (int32_t i = 0; i < n; i++) {
        const ps_instr *instr = &p->code->instrs[i];
        if (ps_instr_computes_node(instr) && !instr->on_host) PS_TRY(list_instr(p, instr));
    }
    return PS_OK;
}

ps_status ps_products_list(const ps_settings *s, const ps_code *code, ps_cuda_product_list *out)
{
    pass p = {.settings = s, .code = code, .is_training = true};
    *out = (ps_cuda_product_list){0};
    PS_TRY(ps_backend_create_cuda_lister(ps_backend_cuda_products(s->backend), out, &p.lister));
    ps_status st = list_pass(&p);
    p.adds = ps_settings_code_options(s).adds_up_micro_batches;
    if (st == PS_OK && p.adds) st = list_pass(&p);
    p.is_training = false;
    if (st == PS_OK) st = list_pass(&p);
    ps_backend_destroy(p.lister);
    if (st != PS_OK) ps_cuda_product_list_deinit(out);
    return st;
}

/* ---- the file ---- */

/* "NVIDIA H100 80GB HBM3" becomes "nvidia-h100-80gb-hbm3". */
static void make_word(const char *text, char *out, size_t bytes)
{
    size_t n = 0;
    for (; *text != '\0' && n + 1 < bytes; text++) {
        if (isalnum((unsigned char)*text))
            out[n++] = (char)tolower((unsigned char)*text);
        else if (n > 0 && out[n - 1] != '-')
            out[n++] = '-';
    }
    out[n] = '\0';
}

/* "": nothing is kept. */
static void make_path(const ps_settings *s, const ps_cuda_site *site, char out[PATH_BYTES])
{
    char gpu[sizeof site->gpu];
    out[0] = '\0';
    if (s->cache_folder[0] == '\0') return;
    make_word(site->gpu, gpu, sizeof gpu);
    snprintf(out, PATH_BYTES, "%s/products-%s-%lld-driver-%lld-cublaslt-%lld-workspace-%lld.json", s->cache_folder, gpu,
             (long long)site->processors, (long long)site->driver_version, (long long)site->library_version,
             (long long)site->workspace_bytes);
}

bool ps_products_is_file_of(const char *name, const char *gpu)
{
    char word[sizeof((ps_cuda_site *)0)->gpu], begin[sizeof word + 16];
    make_word(gpu, word, sizeof word);
    const int n = snprintf(begin, sizeof begin, "products-%s-", word);
    if (strncmp(name, begin, (size_t)n) != 0) return false;
    const size_t digits = strspn(name + n, "0123456789"), length = strlen(name);
    return digits > 0 && strncmp(name + n + digits, "-driver-", strlen("-driver-")) == 0 &&
           strcmp(name + length - strlen(".json"), ".json") == 0;
}

/* An empty table of the site where there is no file; and after a failure. PS_EFORMAT: it is no such table; all else: it
 * may be one. */
static ps_status read_file(const char *path, const ps_cuda_site *site, ps_cuda_product_table *out)
{
    char *text = NULL;
    int64_t n;
    *out = (ps_cuda_product_table){.site = *site};
    if (path[0] == '\0' || (access(path, F_OK) != 0 && errno == ENOENT)) return PS_OK;
    PS_TRY(ps_file_read_all(path, PS_CUDA_PRODUCT_TABLE_BYTES_MAX, &text, &n));
    ps_status st = ps_cuda_product_table_parse(text, n, path, out);
    ps_mem_free(text);
    if (st == PS_OK && !ps_cuda_site_is_same(&out->site, site)) {
        const ps_cuda_site *was = &out->site;
        st = PS_FAIL(PS_EFORMAT,
                     "%s: it is of %s (%lld processors, driver %lld, cuBLASLt %lld, %lld bytes of workspace), and this "
                     "is %s (%lld, %lld, %lld, %lld)",
                     path, was->gpu, (long long)was->processors, (long long)was->driver_version,
                     (long long)was->library_version, (long long)was->workspace_bytes, site->gpu,
                     (long long)site->processors, (long long)site->driver_version, (long long)site->library_version,
                     (long long)site->workspace_bytes);
        ps_cuda_product_table_deinit(out);
    }
    if (st != PS_OK) out->site = *site;
    return st;
}

/* PS_EIO: there is no locking, or it takes too long. */
static ps_status lock_file(const char *path, int *out)
{
    char name[PATH_BYTES + 8];
    snprintf(name, sizeof name, "%s.lock", path);
    const int lock = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    const int64_t begin_ns = ps_clock_ns();
    if (lock < 0) return PS_FAIL(PS_EIO, "%s: cannot open: %s", name, strerror(errno));
    while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || seconds_since(begin_ns) > LOCK_SECONDS) {
            const ps_status st = PS_FAIL(PS_EIO, "%s: cannot lock: %s", name, strerror(errno));
            close(lock);
            return st;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    *out = lock;
    return PS_OK;
}

static ps_status write_file(const char *path, const ps_cuda_product_table *t)
{
    char *text = NULL;
    PS_TRY(ps_cuda_product_table_render(t, &text));
    const ps_status st = ps_file_write_all(path, text, (int64_t)strlen(text));
    ps_mem_free(text);
    return st;
}

/* Does the library take it? Words in a file may be anybody's. */
static ps_status check_choice(const ps_settings *s, const ps_cuda_choice *c, bool *is_taken)
{
    const ps_cuda_products *products = ps_backend_cuda_products(s->backend);
    ps_cuda_choice one = *c;
    const ps_status st = products->choosing->use(products->self, &(ps_cuda_product_table){.choices = &one, .n = 1});
    *is_taken = st == PS_OK;
    return st == PS_EINVAL ? PS_OK : st;
}

/* What of t the file has not, or has wrong, so that the library refuses it. */
static ps_status add_to(ps_cuda_product_table *kept, const ps_settings *s, const ps_cuda_product_table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const ps_cuda_choice *there = ps_cuda_product_table_find(kept, &t->choices[i].shape);
        bool is_taken = false;
        if (there != NULL) PS_TRY(check_choice(s, there, &is_taken));
        if (!is_taken) PS_TRY(ps_cuda_product_table_put(kept, &t->choices[i]));
    }
    return PS_OK;
}

/* What is in the file by now was measured by a run that began at about the same time: so that both compute alike it
 * counts, and t gets it. A file that could not be read is no empty one, and stays. */
static ps_status merge(const char *path, const ps_settings *s, ps_cuda_product_table *t)
{
    ps_cuda_product_table kept;
    ps_status st = read_file(path, &t->site, &kept);
    if (st == PS_EFORMAT) st = PS_OK;
    if (st == PS_OK) st = add_to(&kept, s, t);
    if (st == PS_OK) st = write_file(path, &kept);
    for (size_t i = 0; i < t->n && st == PS_OK; i++)
        t->choices[i] = *ps_cuda_product_table_find(&kept, &t->choices[i].shape);
    ps_cuda_product_table_deinit(&kept);
    return st;
}

/* PS_EIO: nothing is kept, file and t are as before. */
static ps_status keep(const char *path, const ps_settings *s, ps_cuda_product_table *t)
{
    int lock;
    PS_TRY(lock_file(path, &lock));
    const ps_status st = merge(path, s, t);
    close(lock);
    return st;
}

/* Before time is spent: PS_EIO where it is plain that nothing can be kept. */
static ps_status check_place(const char *path, const ps_settings *s)
{
    int lock;
    if (path[0] == '\0') return PS_FAIL(PS_EIO, "there is no cache folder");
    if (access(s->cache_folder, W_OK | X_OK) != 0)
        return PS_FAIL(PS_EIO, "%s: the folder cannot be written: %s", s->cache_folder, strerror(errno));
    PS_TRY(lock_file(path, &lock));
    close(lock);
    return PS_OK;
}

/* ---- rank 0 ---- */

__attribute__((format(printf, 2, 3))) static void tell(ps_products *p, const char *format, ...)
{
    va_list ap;
    const size_t n = strlen(p->trouble);
    va_start(ap, format);
    if (n + 3 < sizeof p->trouble) {
        if (n > 0) memcpy(p->trouble + n, "; ", 3);
        const size_t at = n > 0 ? n + 2 : 0;
        vsnprintf(p->trouble + at, sizeof p->trouble - at, format, ap);
    }
    va_end(ap);
}

/* Of what the file has, what this code wants and the library takes. */
static ps_status take_known(ps_products *p, const ps_settings *s, const char *path, const ps_cuda_product_list *l,
                            const ps_cuda_product_table *kept)
{
    bool has_told = false;
    for (size_t i = 0; i < l->n; i++) {
        const ps_cuda_choice *c = ps_cuda_product_table_find(kept, &l->shapes[i]);
        bool is_taken;
        if (c == NULL) continue;
        PS_TRY(check_choice(s, c, &is_taken));
        if (is_taken)
            PS_TRY(ps_cuda_product_table_put(&p->table, c));
        else if (!has_told)
            tell(p, "of matrix products not all that is kept can be used: %.240s: %.200s", path, ps_last_error());
        has_told |= !is_taken;
    }
    return PS_OK;
}

/* PS_EIO: the file cannot be read. */
static ps_status load_known(ps_products *p, const ps_settings *s, const char *path, const ps_cuda_product_list *l)
{
    ps_cuda_product_table kept;
    ps_status st = read_file(path, &p->table.site, &kept);
    if (st == PS_OK) st = take_known(p, s, path, l, &kept);
    ps_cuda_product_table_deinit(&kept);
    if (st != PS_EFORMAT) return st;
    tell(p, "what is kept of matrix products cannot be used: %.400s", ps_last_error());
    return PS_OK;
}

/* What cannot be kept, as the last error says, is used by who asked for it only: each start would choose anew, and have
 * bits of its own. */
static bool does_without(ps_products *p, const ps_settings *s, size_t n)
{
    if (!s->keeps_products) {
        tell(p, "what is timed of matrix products is for this run only: %.300s", ps_last_error());
        return false;
    }
    tell(p,
         "%zu matrix products are computed by cuBLASLt's first algorithms, as what is timed cannot be kept: %.300s; "
         "name another cache folder (XDG_CACHE_HOME), or set train.product_algorithms = first, or measured, for this "
         "run only",
         n, ps_last_error());
    return true;
}

static ps_status measure(ps_products *p, const ps_settings *s, const ps_cuda_product_list *l)
{
    char path[PATH_BYTES];
    const int64_t begin_ns = ps_clock_ns();
    make_path(s, &p->table.site, path);
    ps_status st = load_known(p, s, path, l);
    const size_t n_known = p->table.n;
    if (st == PS_OK && n_known == l->n) return PS_OK;
    if (st == PS_OK) st = check_place(path, s);
    const bool has_place = st == PS_OK;
    if (!has_place && (st != PS_EIO || does_without(p, s, l->n - n_known))) return st == PS_EIO ? PS_OK : st;
    PS_TRY(ps_cuda_product_list_measure(l, s->backend, s->budgets.bytes[PS_TIER_DEVICE], &p->table, &p->n_measured));
    p->seconds = seconds_since(begin_ns);
    if (p->n_measured == 0 || !has_place) return PS_OK;
    st = keep(path, s, &p->table);
    if (st != PS_EIO) return st;
    if (does_without(p, s, p->table.n - n_known)) {
        p->table.n = n_known;
        p->n_measured = 0;
    }
    return PS_OK;
}

static ps_status choose(ps_products *p, const ps_settings *s, const ps_code *code)
{
    ps_cuda_product_list list;
    PS_TRY(ps_products_list(s, code, &list));
    const ps_status st = measure(p, s, &list);
    ps_cuda_product_list_deinit(&list);
    return st;
}

/* ---- all ranks ---- */

/* Is `yes` so on each of them? */
static ps_status is_so_everywhere(ps_comm *comm, bool *yes)
{
    double value = *yes ? 1 : 0;
    if (comm != NULL) PS_TRY(ps_comm_all_reduce(comm, &value, 1, PS_COMM_MIN));
    *yes = value > 0;
    return PS_OK;
}

static ps_status have_same_site(const ps_settings *s, const ps_cuda_site *site, bool *yes)
{
    ps_cuda_site first = *site;
    if (s->ranks.comm != NULL) PS_TRY(ps_comm_broadcast(s->ranks.comm, &first, sizeof first, 0));
    *yes = ps_cuda_site_is_same(&first, site);
    return is_so_everywhere(s->ranks.comm, yes);
}

/* Rank 0's, entry by entry: they are plain numbers. */
static ps_status share(ps_products *p, ps_comm *comm)
{
    int64_t n = (int64_t)p->table.n;
    if (comm == NULL || ps_comm_size(comm) == 1) return PS_OK;
    PS_TRY(ps_comm_broadcast(comm, &n, sizeof n, 0));
    PS_TRY(ps_comm_agree(comm, ps_mem_reserve(&p->table.choices, (size_t)n, sizeof *p->table.choices)));
    p->table.n = (size_t)n;
    return n > 0 ? ps_comm_broadcast(comm, p->table.choices, n * (int64_t)sizeof *p->table.choices, 0) : PS_OK;
}

static ps_status use(const ps_settings *s, const ps_cuda_product_table *t)
{
    const ps_cuda_products *products = ps_backend_cuda_products(s->backend);
    return ps_comm_agree(s->ranks.comm, products->choosing->use(products->self, t));
}

static bool has_choice(const ps_settings *s)
{
    return s->backend_kind == PS_BACKEND_CUDA && !s->plans_only &&
           ps_backend_cuda_products(s->backend)->choosing != NULL;
}

ps_status ps_products_open(ps_products *p, const ps_settings *s, const ps_code *code)
{
    ps_comm *comm = s->ranks.comm;
    bool is_same;
    ps_status st = PS_OK;
    *p = (ps_products){.has_choice = has_choice(s)};
    PS_TRY(is_so_everywhere(comm, &p->has_choice));
    if (!p->has_choice) return PS_OK;
    const ps_cuda_products *products = ps_backend_cuda_products(s->backend);
    PS_TRY(ps_comm_agree(comm, products->choosing->site(products->self, &p->table.site)));
    bool measures = s->training && s->measures_products;
    PS_TRY(is_so_everywhere(comm, &measures));
    if (!measures) return PS_OK;
    PS_TRY(have_same_site(s, &p->table.site, &is_same));
    if (!is_same) {
        tell(p, "matrix products are not timed, as ranks have different GPUs or libraries: cuBLASLt's first algorithms "
                "compute");
        return PS_OK;
    }
    if (s->ranks.rank == 0) st = choose(p, s, code);
    PS_TRY(ps_comm_agree(comm, st));
    PS_TRY(share(p, comm));
    return use(s, &p->table);
}

void ps_products_close(ps_products *p)
{
    ps_cuda_product_table_deinit(&p->table);
}

/* ---- checkpoints ---- */

ps_status ps_products_render(const ps_products *p, char **out)
{
    *out = NULL;
    return p->has_choice ? ps_cuda_product_table_render(&p->table, out) : PS_OK;
}

/* On failure t is as it was. */
static ps_status adopt(ps_products *p, const ps_settings *s, ps_cuda_product_table *t)
{
    PS_TRY(use(s, t));
    ps_cuda_product_table_deinit(&p->table);
    p->table = *t;
    p->is_given = true;
    p->trouble[0] = '\0'; /* it was of the table that gives way */
    *t = (ps_cuda_product_table){0};
    return PS_OK;
}

static ps_status resume(ps_products *p, const ps_settings *s, ps_cuda_product_table *t, const char *name)
{
    const ps_cuda_site *was = &t->site, *is = &p->table.site;
    bool is_same = ps_cuda_site_is_same(was, is), asks_for_first = s->asks_for_first_products && t->n > 0;
    PS_TRY(is_so_everywhere(s->ranks.comm, &is_same));
    if (is_same && !asks_for_first) return adopt(p, s, t);
    if (is_same)
        tell(p,
             "train.product_algorithms = first, but %.200s was saved with timed ones: bits may differ from a run that "
             "was not interrupted",
             name);
    else
        tell(p,
             "%.200s was saved on %s (%lld processors, driver %lld, cuBLASLt %lld), and this is %s (%lld, %lld, %lld): "
             "algorithms of matrix products are others, and bits may differ from a run that was not interrupted",
             name, was->gpu, (long long)was->processors, (long long)was->driver_version,
             (long long)was->library_version, is->gpu, (long long)is->processors, (long long)is->driver_version,
             (long long)is->library_version);
    return PS_OK;
}

ps_status ps_products_resume(ps_products *p, const ps_settings *s, const char *text, const char *name)
{
    ps_cuda_product_table t = {0};
    if (!p->has_choice || text == NULL) return PS_OK; /* all ranks have read the same file */
    ps_status st = ps_comm_agree(s->ranks.comm, ps_cuda_product_table_parse(text, (int64_t)strlen(text), name, &t));
    if (st == PS_OK) st = resume(p, s, &t, name);
    ps_cuda_product_table_deinit(&t);
    return st;
}
