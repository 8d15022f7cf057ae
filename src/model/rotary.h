/* rotary.h - what decoders with rotary positions, RMS norm, grouped queries and SwiGLU have in common: Llama and its
 * relatives. */
#ifndef PS_MODEL_ROTARY_H
#define PS_MODEL_ROTARY_H

#include "model/model.h"

/* Options, defaults, keys and names that they share. */
extern const ps_traits ps_rotary_traits;

/* How their classes end. */
#define PS_ROTARY_CLASS_ENDS                                                                                           \
    {                                                                                                                  \
        [PS_CONFIG_HEAD_CAUSAL_LM] = "ForCausalLM",                                                                    \
        [PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION] = "ForSequenceClassification",                                        \
        [PS_CONFIG_HEAD_TOKEN_CLASSIFICATION] = "ForTokenClassification",                                              \
        [PS_CONFIG_HEAD_QUESTION_ANSWERING] = "ForQuestionAnswering", [PS_CONFIG_HEAD_NONE] = "Model"                  \
    }

/* Positions that Llama 3 was trained with before its rotary positions were scaled. */
enum { PS_ROTARY_ORIGINAL_OF_LLAMA_3 = 8192 };

/* model.rope_scaling.original_max_position_embeddings, or what its 0 stands for; and whether the scaling uses it. */
int64_t ps_rotary_original_positions(const ps_options *o);
bool ps_rotary_uses_original_positions(const ps_options *o);

/* What the functions below take from the options. */
typedef struct ps_rotary {
    const ps_options *o;
    int64_t H, KV, D; /* heads; of keys and values; head size */
    float eps;        /* of norms */
    ps_rope rope;
} ps_rotary;

ps_rotary ps_rotary_of(const ps_options *o);

/* Around the layers: embeddings before them; the last norm and the head after them. A family's build goes
 *
 *     x = begin;  for each layer: begin_layer, x = x + attention, x = x + feed-forward, ps_end_block;  end */
ps_value ps_rotary_begin(ps_builder *b, const ps_rotary *m);
void ps_rotary_begin_layer(ps_builder *b, int64_t layer);
PS_NODISCARD ps_status ps_rotary_end(ps_builder *b, ps_value x, const ps_rotary *m);

/* Rotated queries and keys, H * D and KV * D columns: attention, and its projection "self_attn.o_proj". */
ps_value ps_rotary_attention(ps_builder *b, ps_value q, ps_value k, ps_value v, const ps_rotary *m, int64_t layer);

/* SwiGLU: down(silu(gate x) * up x), with "mlp.gate_proj", "mlp.up_proj" and "mlp.down_proj". */
ps_value ps_rotary_mlp(ps_builder *b, ps_value x, const ps_rotary *m);

#endif
