#include "data/data_loader.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/mem.h"
#include "data/chat_format.h"
#include "data/data_loader_kind.h"
#include "data/dataset.h"
#include "data/mlm.h"
#include "data/order.h"
#include "data/sample_set.h"

/* Streams of random numbers in addition to the epochs of the order, which are small numbers. */
#define STREAM_CHOICE UINT64_MAX
#define STREAM_MASK_TRAIN ((uint64_t)1 << 63)
#define STREAM_MASK_VALIDATION ((uint64_t)3 << 62)

/* Items [first, first + n) of a source, or those that `items` lists. */
typedef struct data_loader_split {
    ps_dataset *stream;        /* one of these four, the others are NULL */
    ps_sample_set *samples;    /* classification */
    ps_instruct_set *instruct; /* causal LM */
    ps_task_set *task;         /* numbers, labels, words, answers */
    int64_t first, n;
    int64_t *items; /* [n], ascending; NULL: all from `first` on */
} data_loader_split;

struct ps_data_loader {
    ps_data_loader_task task;
    int32_t n_values;     /* numbers or labels of a row */
    int64_t T, n_content; /* tokens of the stream in a row: T, or T less [CLS] and [SEP] */
    ps_specials specials;
    int32_t n_vocabulary; /* that random tokens are drawn from */
    double mlm_probability;
    uint64_t seed;
    int64_t pad_to_multiple_of;
    bool in_file_order, has_validation_source; /* has_validation_source: the validation split has a separate source */
    ps_labels labels;
    data_loader_split splits[PS_SPLIT_COUNT];
};

/* Whether items are lines, each a row, or windows of a stream. */
static bool has_lines(const data_loader_split *s)
{
    return s->stream == NULL;
}

/* ---- opening ---- */

static ps_status check_options(const ps_data_loader_options *o)
{
    if (o->train == NULL || o->train[0] == '\0') return PS_FAIL(PS_EINVAL, "data.train is not set: name a file");
    PS_TRY(ps_dataset_check_file(o->train, o->format)); /* before other checks of it */
    if (o->validation != NULL && o->validation[0] != '\0') PS_TRY(ps_dataset_check_file(o->validation, o->format));
    if (o->sequence < 1 || o->sequence > INT32_MAX)
        return PS_FAIL(PS_EINVAL, "sequence length %lld, expected 1 to %d", (long long)o->sequence, INT32_MAX);
    if (!(o->validation_fraction >= 0 && o->validation_fraction < 1))
        return PS_FAIL(PS_EINVAL, "validation fraction %g, expected at least 0 and below 1", o->validation_fraction);
    if (o->task == PS_DATA_LOADER_MASKED_LM && o->specials.mask < 0)
        return PS_FAIL(PS_EINVAL, "%s: masked language modelling needs a tokenizer with a mask token", o->train);
    if (o->task == PS_DATA_LOADER_MASKED_LM && !(o->mlm_probability > 0 && o->mlm_probability <= 1))
        return PS_FAIL(PS_EINVAL, "masking probability %g, expected above 0 and at most 1", o->mlm_probability);
    const int32_t ids[] = {o->specials.cls, o->specials.sep, o->specials.mask, o->specials.pad, o->specials.eot};
    for (size_t i = 0; i < PS_ARRAY_LEN(ids); i++)
        if (ids[i] >= o->vocab_size)
            return PS_FAIL(PS_EINVAL,
                           "the tokenizer has a special token with id %d, but the model's vocabulary only %d", ids[i],
                           o->vocab_size);
    return PS_OK;
}

static ps_status check_tokenizer(const ps_data_loader_options *o, const char *path)
{
    if (o->tokenizer == NULL) return PS_FAIL(PS_EINVAL, "%s: text needs a tokenizer; set data.tokenizer", path);
    if (ps_tokenizer_vocab_size(o->tokenizer) > o->vocab_size)
        return PS_FAIL(PS_EINVAL, "%s: the tokenizer has %d ids, but the model's vocabulary only %d", path,
                       ps_tokenizer_vocab_size(o->tokenizer), o->vocab_size);
    return PS_OK;
}

static ps_status open_samples(ps_data_loader *f, const ps_data_loader_options *o, const char *path,
                              data_loader_split *split)
{
    PS_TRY(check_tokenizer(o, path));
    const ps_jsonl_keys keys = {.text = o->text_key, .text_pair = o->text_pair_key, .label = o->label_key};
    PS_TRY(ps_sample_set_open(path, &keys, o->tokenizer, o->added_tokens, o->sequence, &f->labels, &split->samples));
    split->n = ps_sample_set_count(split->samples);
    return PS_OK;
}

/* Whether each line is padded to a row, with a label or a target of task_set.h. */
static bool is_labelled(ps_data_loader_task task)
{
    return task >= PS_DATA_LOADER_CLASSIFICATION;
}

static ps_status open_task(ps_data_loader *f, const ps_data_loader_options *o, const char *path,
                           data_loader_split *split)
{
    static const ps_task_kind kinds[] = {[PS_DATA_LOADER_NUMBERS] = PS_TASK_NUMBERS,
                                         [PS_DATA_LOADER_LABELS] = PS_TASK_LABELS,
                                         [PS_DATA_LOADER_WORDS] = PS_TASK_WORDS,
                                         [PS_DATA_LOADER_ANSWERS] = PS_TASK_ANSWERS};
    const ps_task_options options = {.kind = kinds[o->task],
                                     .text_key = o->text_key,
                                     .text_pair_key = o->text_pair_key,
                                     .label_key = o->label_key,
                                     .tokenizer = o->tokenizer,
                                     .added_tokens = o->added_tokens,
                                     .T = o->sequence,
                                     .n_values = o->n_labels,
                                     .doc_stride = o->doc_stride};
    PS_TRY(check_tokenizer(o, path));
    PS_TRY(ps_task_set_open(path, &options, &f->labels, &split->task));
    split->n = ps_task_set_count(split->task);
    return PS_OK;
}

/* Lines of which only a part are targets. */
static ps_status open_instruct(const ps_data_loader_options *o, const char *path, ps_data_loader_kind kind,
                               data_loader_split *split)
{
    ps_instruct_options options = ps_data_loader_instruct_options(o);
    options.form = ps_data_loader_form_of(kind);
    PS_TRY(check_tokenizer(o, path));
    PS_TRY(ps_instruct_set_open(path, &options, &split->instruct));
    split->n = ps_instruct_set_count(split->instruct);
    return PS_OK;
}

static ps_status open_stream(const ps_data_loader *f, const ps_data_loader_options *o, const char *path,
                             data_loader_split *split)
{
    const ps_dataset_options options = {.format = o->format,
                                        .tokenizer = o->tokenizer,
                                        .added_tokens = o->added_tokens,
                                        .separator = o->specials.eot >= 0 ? o->specials.eot : o->specials.sep,
                                        .text_key = o->text_key,
                                        .cache_folder = o->cache_folder,
                                        .memory_bytes = o->memory_bytes,
                                        .vocab_size = o->vocab_size};
    PS_TRY(ps_dataset_open(path, &options, &split->stream));
    /* the target of the last window's last token is the following token */
    const int64_t n_tokens = ps_dataset_token_count(split->stream) - (f->task == PS_DATA_LOADER_CAUSAL_LM);
    split->n = n_tokens / f->n_content;
    return PS_OK;
}

/* The numbers are those of the split's source before its division. */
static ps_status check_count(const ps_data_loader *f, const char *path, const data_loader_split *split, bool is_divided)
{
    const int64_t n_needed = is_divided ? 2 : 1;
    if (split->n >= n_needed) return PS_OK;
    if (split->instruct != NULL)
        return PS_FAIL(PS_EINVAL,
                       "%s: %lld of %lld lines has something to predict, but one to train on and one to validate on "
                       "are needed; a longer data.sequence_length may leave more",
                       path, (long long)split->n, (long long)ps_instruct_set_info(split->instruct).n_lines);
    if (has_lines(split))
        return PS_FAIL(PS_EINVAL, "%s: %lld line, but a line to train on and one to validate on are needed", path,
                       (long long)split->n);
    return PS_FAIL(PS_EINVAL,
                   "%s: %lld tokens, but %s needs %lld of them at sequence length %lld; use a longer text or a "
                   "shorter sequence",
                   path, (long long)ps_dataset_token_count(split->stream),
                   is_divided ? "a window to train on and one to validate on" : "one window",
                   (long long)(n_needed * f->n_content + (f->task == PS_DATA_LOADER_CAUSAL_LM)), (long long)f->T);
}

/* Lines: the last n_validation of a permutation of all n are for validation. */
static ps_status choose_lines(ps_data_loader *f, int64_t n, int64_t n_validation)
{
    ps_status st;
    bool *is_chosen = NULL;
    PS_TRY(ps_mem_alloc((size_t)n, sizeof *is_chosen, &is_chosen));
    for (int64_t position = n - n_validation; position < n; position++)
        is_chosen[ps_order_at(f->seed, STREAM_CHOICE, n, position)] = true;
    for (int i = 0; i < PS_SPLIT_COUNT; i++)
        PS_TRY_GOTO(ps_mem_alloc((size_t)f->splits[i].n, sizeof *f->splits[i].items, &f->splits[i].items));
    int64_t n_done[PS_SPLIT_COUNT] = {0};
    for (int64_t item = 0; item < n; item++) {
        const ps_split split = is_chosen[item] ? PS_SPLIT_VALIDATION : PS_SPLIT_TRAIN;
        f->splits[split].items[n_done[split]++] = item;
    }
out:
    ps_mem_free(is_chosen);
    return st;
}

static ps_status divide(ps_data_loader *f, double fraction)
{
    data_loader_split *train = &f->splits[PS_SPLIT_TRAIN], *validation = &f->splits[PS_SPLIT_VALIDATION];
    const int64_t n = train->n;
    const int64_t n_validation = ps_min_i64(ps_max_i64((int64_t)((double)n * fraction), 1), n - 1);
    *validation = *train;
    train->n = n - n_validation;
    validation->n = n_validation;
    if (has_lines(train)) return choose_lines(f, n, n_validation);
    validation->first = n - n_validation;
    return PS_OK;
}

static ps_status open_split(ps_data_loader *f, const ps_data_loader_options *o, const char *path,
                            ps_data_loader_kind kind, bool is_divided, data_loader_split *s)
{
    if (kind == PS_DATA_LOADER_LABELLED)
        PS_TRY(o->task == PS_DATA_LOADER_CLASSIFICATION ? open_samples(f, o, path, s) : open_task(f, o, path, s));
    else if (ps_data_loader_form_of(kind) != PS_CONFIG_JSONL_FORM_AUTO)
        PS_TRY(open_instruct(o, path, kind, s));
    else
        PS_TRY(open_stream(f, o, path, s));
    return check_count(f, path, s, is_divided);
}

/* A validation split that is a share of the training data is made later. */
static ps_status open_files(ps_data_loader *f, const ps_data_loader_options *o)
{
    const char *const paths[PS_SPLIT_COUNT] = {o->train, o->validation};
    const int n = f->has_validation_source ? PS_SPLIT_COUNT : 1;
    const bool is_divided = !f->has_validation_source && o->validation_fraction > 0;
    ps_data_loader_kind kinds[PS_SPLIT_COUNT];
    bool has_messages = false;
    for (int i = 0; i < n; i++) PS_TRY(ps_data_loader_kind_of(o, paths[i], &kinds[i]));
    PS_TRY(ps_data_loader_check_uses(o, kinds, n));
    for (int i = 0; i < n; i++) {
        PS_TRY(open_split(f, o, paths[i], kinds[i], is_divided, &f->splits[i]));
        has_messages |= ps_data_loader_instruct_info(f, (ps_split)i).chat_format != PS_CONFIG_CHAT_FORMAT_AUTO;
    }
    return has_messages ? PS_OK : ps_data_loader_refuse_chat_format(o);
}

static ps_status set_up(ps_data_loader *f, const ps_data_loader_options *o)
{
    const bool has_file = o->validation != NULL && o->validation[0] != '\0';
    const bool is_masked = o->task == PS_DATA_LOADER_MASKED_LM;
    f->task = o->task;
    f->T = o->sequence;
    f->n_content = o->sequence - (is_masked && o->specials.cls >= 0) - (is_masked && o->specials.sep >= 0);
    f->specials = o->specials;
    f->n_vocabulary = o->tokenizer != NULL ? ps_tokenizer_vocab_size(o->tokenizer) : o->vocab_size;
    f->mlm_probability = o->mlm_probability;
    f->seed = o->seed;
    f->pad_to_multiple_of = o->pad_to_multiple_of;
    f->in_file_order = o->in_file_order;
    f->has_validation_source = has_file;
    if (f->n_content < 1)
        return PS_FAIL(PS_EINVAL, "a sequence length of %lld leaves no room between the special tokens",
                       (long long)f->T);
    f->n_values = f->task == PS_DATA_LOADER_NUMBERS || f->task == PS_DATA_LOADER_LABELS ? o->n_labels : 0;
    if (f->task == PS_DATA_LOADER_CLASSIFICATION || f->task == PS_DATA_LOADER_LABELS || f->task == PS_DATA_LOADER_WORDS)
        PS_TRY(ps_labels_init(&f->labels, o->labels, o->n_labels));
    PS_TRY(open_files(f, o));
    return !has_file && o->validation_fraction > 0 ? divide(f, o->validation_fraction) : PS_OK;
}

static void set_keys(ps_data_loader_options *o)
{
    if (o->text_key == NULL) o->text_key = PS_DATA_LOADER_TEXT_KEY;
    if (o->text_pair_key == NULL) o->text_pair_key = PS_DATA_LOADER_TEXT_PAIR_KEY;
    if (o->label_key == NULL) o->label_key = PS_DATA_LOADER_LABEL_KEY;
    if (o->messages_key == NULL) o->messages_key = PS_DATA_LOADER_MESSAGES_KEY;
    if (o->prompt_key == NULL) o->prompt_key = PS_DATA_LOADER_PROMPT_KEY;
    if (o->completion_key == NULL) o->completion_key = PS_DATA_LOADER_COMPLETION_KEY;
}

ps_status ps_data_loader_open(const ps_data_loader_options *options, ps_data_loader **out)
{
    PS_ASSERT(options->vocab_size > 0 && (!is_labelled(options->task) || options->n_labels > 0));
    *out = NULL;
    ps_data_loader *f = NULL;
    ps_data_loader_options o = *options;
    set_keys(&o);
    PS_TRY(check_options(&o));
    PS_TRY(ps_mem_alloc(1, sizeof *f, &f));
    const ps_status st = set_up(f, &o);
    if (st == PS_OK)
        *out = f;
    else
        ps_data_loader_close(f);
    return st;
}

void ps_data_loader_close(ps_data_loader *f)
{
    if (f == NULL) return;
    for (int i = 0; i < PS_SPLIT_COUNT; i++) {
        data_loader_split *s = &f->splits[i];
        ps_mem_free(s->items);
        if (i == PS_SPLIT_VALIDATION && !f->has_validation_source) continue;
        ps_dataset_close(s->stream);
        ps_sample_set_close(s->samples);
        ps_instruct_set_close(s->instruct);
        ps_task_set_close(s->task);
    }
    ps_labels_deinit(&f->labels);
    ps_mem_free(f);
}

int64_t ps_data_loader_sample_count(const ps_data_loader *f, ps_split split)
{
    return f->splits[split].n;
}

const char *ps_data_loader_label_name(const ps_data_loader *f, int32_t label)
{
    return label >= 0 && label < f->labels.list.n ? f->labels.list.names[label] : NULL;
}

int64_t ps_data_loader_item_of(const ps_data_loader *f, ps_split split, int64_t sample)
{
    const data_loader_split *s = &f->splits[split];
    PS_ASSERT(sample >= 0 && s->n > 0);
    const int64_t epoch = sample / s->n;
    int64_t position = sample % s->n;
    if (split == PS_SPLIT_TRAIN && !f->in_file_order) position = ps_order_at(f->seed, (uint64_t)epoch, s->n, position);
    return s->items != NULL ? s->items[position] : s->first + position;
}

int64_t ps_data_loader_sequence(const ps_data_loader *f)
{
    return f->T;
}

ps_instruct_info ps_data_loader_instruct_info(const ps_data_loader *f, ps_split split)
{
    const ps_instruct_set *set = f->splits[split].instruct;
    const bool is_share = split == PS_SPLIT_VALIDATION && !f->has_validation_source;
    return set != NULL && !is_share ? ps_instruct_set_info(set) : (ps_instruct_info){0};
}

ps_data_loader_task ps_data_loader_get_task(const ps_data_loader *f)
{
    return f->task;
}

const ps_task_set *ps_data_loader_task_set(const ps_data_loader *f, ps_split split)
{
    return f->splits[split].task;
}

int64_t ps_data_loader_row_targets(const ps_data_loader *f, int64_t T)
{
    switch (f->task) {
    case PS_DATA_LOADER_CLASSIFICATION: return 1;
    case PS_DATA_LOADER_NUMBERS:
    case PS_DATA_LOADER_LABELS: return f->n_values;
    case PS_DATA_LOADER_ANSWERS: return 2;
    case PS_DATA_LOADER_CAUSAL_LM:
    case PS_DATA_LOADER_MASKED_LM:
    case PS_DATA_LOADER_WORDS: break;
    }
    return T;
}

int ps_data_loader_chooses_targets(const ps_data_loader *f)
{
    return f->splits[PS_SPLIT_TRAIN].instruct != NULL || f->splits[PS_SPLIT_TRAIN].task != NULL;
}

int ps_data_loader_has_choices(const ps_data_loader *f)
{
    return f->task != PS_DATA_LOADER_NUMBERS;
}

int64_t ps_data_loader_line_of(const ps_data_loader *f, ps_split split, int64_t sample)
{
    const ps_instruct_set *set = f->splits[split].instruct;
    return set != NULL ? ps_instruct_set_get(set, ps_data_loader_item_of(f, split, sample)).line : 0;
}

/* Tokens of a line's row. The last one of instructions is only a target. */
static int64_t line_length(const ps_data_loader *f, const data_loader_split *s, int64_t item)
{
    if (s->samples != NULL) return ps_sample_set_get(s->samples, item).n_ids;
    if (s->task != NULL) return ps_task_set_get(s->task, item).n_ids;
    return ps_min_i64(ps_instruct_set_get(s->instruct, item).n - 1, f->T);
}

int64_t ps_data_loader_length(const ps_data_loader *f, ps_split split, int64_t first_sample, int64_t n_samples)
{
    const data_loader_split *s = &f->splits[split];
    if (f->pad_to_multiple_of == 0 || !has_lines(s) || s->n == 0) return f->T;
    int64_t longest = 1;
    for (int64_t i = first_sample; i < first_sample + n_samples; i++)
        longest = ps_max_i64(longest, line_length(f, s, ps_data_loader_item_of(f, split, i)));
    return ps_min_i64(f->T, ps_ceil_div(longest, f->pad_to_multiple_of) * f->pad_to_multiple_of);
}

int64_t ps_data_loader_token_count(const ps_data_loader *f, ps_split split, int64_t first_sample, int64_t n_samples)
{
    const data_loader_split *s = &f->splits[split];
    int64_t n = 0;
    if (!has_lines(s) || s->n == 0) return n_samples * f->T;
    for (int64_t i = first_sample; i < first_sample + n_samples; i++)
        n += line_length(f, s, ps_data_loader_item_of(f, split, i));
    return n;
}

/* ---- rows ---- */

static ps_status fill_causal(const ps_data_loader *f, const data_loader_split *s, int64_t item, int32_t *tokens,
                             int32_t *targets)
{
    const int64_t T = f->T, begin = item * T;
    PS_TRY(ps_dataset_read(s->stream, begin, T, tokens));
    /* the targets are the tokens shifted by one; only the last target is not in `tokens` */
    memcpy(targets, tokens + 1, (size_t)(T - 1) * sizeof *targets);
    return ps_dataset_read(s->stream, begin + T, 1, targets + T - 1);
}

static ps_status fill_masked(const ps_data_loader *f, const data_loader_split *s, int64_t item, uint64_t stream,
                             int32_t *tokens, int32_t *targets)
{
    int64_t n = 0;
    if (f->specials.cls >= 0) tokens[n++] = f->specials.cls;
    PS_TRY(ps_dataset_read(s->stream, item * f->n_content, f->n_content, tokens + n));
    n += f->n_content;
    if (f->specials.sep >= 0) tokens[n++] = f->specials.sep;
    ps_mlm_mask(&f->specials, f->n_vocabulary, f->mlm_probability, (ps_rng_key){f->seed, stream}, n, tokens, targets);
    return PS_OK;
}

/* A row with its padding: n ids, of which those from n_first on have token type 1. */
static void fill_ids(const ps_data_loader *f, const int32_t *ids, int64_t n, int64_t n_first, int64_t row,
                     ps_data_loader_batch *out)
{
    const int64_t T = out->T > 0 ? out->T : f->T;
    const int32_t filler = ps_specials_filler(&f->specials);
    PS_ASSERT(n <= T && T <= f->T);
    for (int64_t t = 0; t < T; t++) {
        const bool is_token = t < n;
        out->tokens[row * T + t] = is_token ? ids[t] : filler;
        if (out->attention_mask != NULL) out->attention_mask[row * T + t] = is_token;
        if (out->token_type_ids != NULL) out->token_type_ids[row * T + t] = is_token && t >= n_first;
    }
}

static void fill_sample(const ps_data_loader *f, const data_loader_split *s, int64_t item, int64_t row,
                        ps_data_loader_batch *out)
{
    const ps_sample sample = ps_sample_set_get(s->samples, item);
    fill_ids(f, sample.ids, sample.n_ids, sample.n_first, row, out);
    out->targets[row] = sample.label;
}

static void fill_task(const ps_data_loader *f, const data_loader_split *s, int64_t item, int64_t row,
                      ps_data_loader_batch *out)
{
    const int64_t T = out->T > 0 ? out->T : f->T;
    const ps_task_sample sample = ps_task_set_get(s->task, item);
    fill_ids(f, sample.ids, sample.n_ids, sample.n_first, row, out);
    if (f->n_values > 0)
        memcpy(out->values + row * f->n_values, sample.values, (size_t)f->n_values * sizeof *out->values);
    else if (f->task == PS_DATA_LOADER_ANSWERS)
        memcpy(out->targets + row * 2, sample.targets, 2 * sizeof *out->targets);
    for (int64_t t = 0; f->task == PS_DATA_LOADER_WORDS && t < T; t++)
        out->targets[row * T + t] = t < sample.n_ids ? sample.targets[t] : PS_IGNORE_INDEX;
}

/* The targets are the next tokens, of those that are to be predicted. Tokens after the sample have no target, and no
 * effect, as attention is causal. */
static void fill_instruct(const ps_data_loader *f, const data_loader_split *s, int64_t item, int64_t row,
                          ps_data_loader_batch *out)
{
    const int64_t T = out->T > 0 ? out->T : f->T;
    const ps_instruct_sample sample = ps_instruct_set_get(s->instruct, item);
    PS_ASSERT(sample.n <= T + 1 && T <= f->T);
    const int32_t filler = ps_specials_filler(&f->specials);
    for (int64_t t = 0; t < T; t++) {
        const bool is_target = t + 1 < sample.n && ps_target_is_marked(sample.entries[t + 1]);
        out->tokens[row * T + t] = t < sample.n ? ps_target_id(sample.entries[t]) : filler;
        out->targets[row * T + t] = is_target ? ps_target_id(sample.entries[t + 1]) : PS_IGNORE_INDEX;
        if (out->attention_mask != NULL) out->attention_mask[row * T + t] = t < sample.n;
        if (out->token_type_ids != NULL) out->token_type_ids[row * T + t] = 0;
    }
}

static ps_status fill_row(const ps_data_loader *f, ps_split split, int64_t sample, int64_t row,
                          ps_data_loader_batch *out)
{
    const data_loader_split *s = &f->splits[split];
    const int64_t item = ps_data_loader_item_of(f, split, sample);
    if (is_labelled(f->task)) {
        if (s->task != NULL)
            fill_task(f, s, item, row, out);
        else
            fill_sample(f, s, item, row, out);
        return PS_OK;
    }
    if (s->instruct != NULL) {
        fill_instruct(f, s, item, row, out);
        return PS_OK;
    }
    PS_ASSERT(out->T == 0 || out->T == f->T);
    int32_t *tokens = out->tokens + row * f->T;
    for (int64_t t = 0; t < f->T; t++) {
        if (out->attention_mask != NULL) out->attention_mask[row * f->T + t] = 1;
        if (out->token_type_ids != NULL) out->token_type_ids[row * f->T + t] = 0;
    }
    if (f->task == PS_DATA_LOADER_CAUSAL_LM) return fill_causal(f, s, item, tokens, out->targets + row * f->T);
    const uint64_t stream = split == PS_SPLIT_TRAIN ? STREAM_MASK_TRAIN | (uint64_t)sample
                                                    : STREAM_MASK_VALIDATION | (uint64_t)(sample % s->n);
    return fill_masked(f, s, item, stream, tokens, out->targets + row * f->T);
}

ps_status ps_data_loader_get(const ps_data_loader *f, ps_split split, int64_t first_sample, int64_t n_samples,
                             ps_data_loader_batch *out)
{
    PS_ASSERT(first_sample >= 0 && n_samples >= 0);
    if (f->splits[split].n == 0)
        return PS_FAIL(PS_EINVAL, "there are no validation data; set data.validation or data.validation_split");
    for (int64_t row = 0; row < n_samples; row++) PS_TRY(fill_row(f, split, first_sample + row, row, out));
    return PS_OK;
}

ps_status ps_data_loader_get_once(const ps_data_loader *f, ps_split split, int64_t first_sample, int64_t n_samples,
                                  ps_data_loader_batch *out)
{
    PS_TRY(ps_data_loader_get(f, split, first_sample, n_samples, out));
    const int64_t row_targets = ps_data_loader_row_targets(f, out->T > 0 ? out->T : f->T);
    const int64_t n_real = ps_min_i64(ps_max_i64(f->splits[split].n - first_sample, 0), n_samples);
    for (int64_t i = n_real * row_targets; i < n_samples * row_targets; i++) {
        if (f->n_values > 0)
            out->values[i] = NAN;
        else
            out->targets[i] = PS_IGNORE_INDEX;
    }
    return PS_OK;
}

/* ---- batches ---- */

ps_status ps_data_loader_batch_init(ps_data_loader_batch *b, const ps_data_loader *f, int64_t n_rows)
{
    ps_status st;
    const bool is_padded = is_labelled(f->task);
    const size_t n = (size_t)n_rows * (size_t)f->T;
    const size_t n_targets = (size_t)n_rows * (size_t)ps_data_loader_row_targets(f, f->T);
    bool has_pairs = false;
    for (int i = 0; i < PS_SPLIT_COUNT; i++) {
        has_pairs |= f->splits[i].samples != NULL && ps_sample_set_has_pairs(f->splits[i].samples);
        has_pairs |= f->splits[i].task != NULL && ps_task_set_has_pairs(f->splits[i].task);
    }
    *b = (ps_data_loader_batch){0};
    PS_TRY_GOTO(ps_mem_alloc(n, sizeof *b->tokens, &b->tokens));
    if (f->n_values > 0)
        PS_TRY_GOTO(ps_mem_alloc(n_targets, sizeof *b->values, &b->values));
    else
        PS_TRY_GOTO(ps_mem_alloc(n_targets, sizeof *b->targets, &b->targets));
    if (is_padded) PS_TRY_GOTO(ps_mem_alloc(n, sizeof *b->attention_mask, &b->attention_mask));
    if (has_pairs) PS_TRY_GOTO(ps_mem_alloc(n, sizeof *b->token_type_ids, &b->token_type_ids));
    return PS_OK;
out:
    ps_data_loader_batch_deinit(b);
    return st;
}

void ps_data_loader_batch_deinit(ps_data_loader_batch *b)
{
    ps_mem_free(b->tokens);
    ps_mem_free(b->targets);
    ps_mem_free(b->values);
    ps_mem_free(b->attention_mask);
    ps_mem_free(b->token_type_ids);
    *b = (ps_data_loader_batch){0};
}

/* ---- all of it ---- */

static ps_status hash_stream(const ps_dataset *d, XXH3_state_t *state)
{
    enum { PIECE = 1 << 16 };
    int32_t *tokens = NULL;
    const int64_t n = ps_dataset_token_count(d);
    PS_TRY(ps_mem_alloc(PIECE, sizeof *tokens, &tokens));
    ps_status st = PS_OK;
    for (int64_t at = 0; at < n && st == PS_OK; at += PIECE) {
        const int64_t n_now = ps_min_i64(PIECE, n - at);
        st = ps_dataset_read(d, at, n_now, tokens);
        if (st == PS_OK) XXH3_64bits_update(state, tokens, (size_t)n_now * sizeof *tokens);
    }
    ps_mem_free(tokens);
    return st;
}

static void hash_task_set(const ps_data_loader *f, const ps_task_set *set, XXH3_state_t *state)
{
    for (int64_t i = 0; i < ps_task_set_count(set); i++) {
        const ps_task_sample line = ps_task_set_get(set, i);
        const int64_t head[] = {line.n_ids, line.n_first};
        XXH3_64bits_update(state, head, sizeof head);
        XXH3_64bits_update(state, line.ids, (size_t)line.n_ids * sizeof *line.ids);
        if (f->n_values > 0)
            XXH3_64bits_update(state, line.values, (size_t)f->n_values * sizeof *line.values);
        else
            XXH3_64bits_update(state, line.targets,
                               (size_t)(f->task == PS_DATA_LOADER_ANSWERS ? 2 : line.n_ids) * sizeof *line.targets);
    }
}

static void hash_lines(const ps_data_loader *f, const data_loader_split *s, XXH3_state_t *state)
{
    if (s->task != NULL) {
        hash_task_set(f, s->task, state);
        return;
    }
    const int64_t n = s->samples != NULL ? ps_sample_set_count(s->samples) : ps_instruct_set_count(s->instruct);
    for (int64_t i = 0; i < n; i++) {
        if (s->samples != NULL) {
            const ps_sample line = ps_sample_set_get(s->samples, i);
            const int64_t head[] = {line.n_ids, line.n_first, line.label};
            XXH3_64bits_update(state, head, sizeof head);
            XXH3_64bits_update(state, line.ids, (size_t)line.n_ids * sizeof *line.ids);
        } else {
            const ps_instruct_sample line = ps_instruct_set_get(s->instruct, i);
            XXH3_64bits_update(state, &line.n, sizeof line.n);
            XXH3_64bits_update(state, line.entries, (size_t)line.n * sizeof *line.entries);
        }
    }
}

ps_status ps_data_loader_xxh3(const ps_data_loader *f, uint64_t *hash)
{
    PS_TRY(PS_NEED("loader hash", f, hash));
    *hash = 0;
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for a hash");
    XXH3_64bits_reset(state);
    ps_status st = PS_OK;
    for (int i = 0; i < PS_SPLIT_COUNT && st == PS_OK; i++) {
        const data_loader_split *s = &f->splits[i];
        const int64_t head[] = {i, s->first, s->n};
        XXH3_64bits_update(state, head, sizeof head);
        if (s->items != NULL) XXH3_64bits_update(state, s->items, (size_t)s->n * sizeof *s->items);
        if (s->n == 0 || (i == PS_SPLIT_VALIDATION && !f->has_validation_source))
            continue; /* a share of the training data */
        if (has_lines(s))
            hash_lines(f, s, state);
        else
            st = hash_stream(s->stream, state);
    }
    if (st == PS_OK) *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return st;
}
