/* rotary.h - shared parts of decoders with rotary positions, RMS norm, grouped queries and SwiGLU: Llama and similar
 * families. */
#ifndef PS_MODEL_ROTARY_H
#define PS_MODEL_ROTARY_H

#include "config/model/model.h"

/* Shared options, defaults, keys and names. */
extern const ps_traits ps_rotary_traits;

/* Suffixes of their class names. */
#define PS_ROTARY_CLASS_ENDS                                                                                           \
    {                                                                                                                  \
        [PS_CONFIG_HEAD_CAUSAL_LM] = "ForCausalLM",                                                                    \
        [PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION] = "ForSequenceClassification",                                        \
        [PS_CONFIG_HEAD_TOKEN_CLASSIFICATION] = "ForTokenClassification",                                              \
        [PS_CONFIG_HEAD_QUESTION_ANSWERING] = "ForQuestionAnswering", [PS_CONFIG_HEAD_NONE] = "Model"                  \
    }

/* Context length of Llama 3 before its rotary positions were scaled. */
enum { PS_ROTARY_ORIGINAL_OF_LLAMA_3 = 8192 };

/* model.rope_scaling.original_max_position_embeddings, or the length that its 0 resolves to; and whether the scaling
 * uses it. */
int64_t ps_rotary_original_positions(const ps_options *o);
bool ps_rotary_uses_original_positions(const ps_options *o);

/* Sizes that the functions below need. */
typedef struct ps_rotary {
    const ps_options *o;
    int64_t H, KV, D; /* heads; heads of keys and values; head size */
    float eps;        /* of norms */
    ps_rope rope;
} ps_rotary;

ps_rotary ps_rotary_of(const ps_options *o);

/* Begin: embeddings. End: the last norm and the head. A family's build function is
 *
 *     x = begin;  for each layer: begin_layer, x = x + attention, x = x + feed-forward, ps_end_block;  end */
ps_value ps_rotary_begin(ps_builder *b, const ps_rotary *m);
void ps_rotary_begin_layer(ps_builder *b, int64_t layer);
PS_NODISCARD ps_status ps_rotary_end(ps_builder *b, ps_value x, const ps_rotary *m);

/* Attention of rotated queries and keys, H * D and KV * D columns, and its projection "self_attn.o_proj". */
ps_value ps_rotary_attention(ps_builder *b, ps_value q, ps_value k, ps_value v, const ps_rotary *m, int64_t layer);

/* SwiGLU: down(silu(gate x) * up x), with "mlp.gate_proj", "mlp.up_proj" and "mlp.down_proj". */
ps_value ps_rotary_mlp(ps_builder *b, ps_value x, const ps_rotary *m);

#endif
