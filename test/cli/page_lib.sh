# page_lib.sh - what tries the commands and programs of a page as they stand there; sourced after cli_lib.sh.

# block PAGE LANGUAGE N: the Nth fenced block of that language
block() {
    awk -v begin="\`\`\`$2" -v n="$3" '/^```/ { here = !inside && $0 == begin && ++i == n; inside = !inside; next } here' "$1"
}

# download FAMILY FOLDER: what doc/finetune.md downloads, tiny and with random weights, in Qwen's form of conversations. The
# chat template is none that is known, as Qwen3's own.
download() {
    mkdir "$work/tokenizer"
    cp test/golden/tokenizers/qwen_like.json "$work/tokenizer/tokenizer.json"
    cat >"$work/tokenizer/tokenizer_config.json" <<'END'
{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template":
 "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"}
END
    echo '{"eos_token_id": [2002, 2000]}' >"$work/tokenizer/generation_config.json"
    cat >"$work/qwen.json" <<END
{
  "model": {"type": "$1", "vocab_size": 2008, "max_position_embeddings": 40960, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": $([ "$1" = qwen3 ] && echo 32 || echo 16), "intermediate_size": 128,
            "rope_theta": 1000000, "layer_norm_eps": 1e-6, "tie_word_embeddings": true},
  "data": {"sequence_length": 16},
  "train": {"steps": 0, "output_dir": "$work/qwen"}
}
END
    expect 0 "$pstar" train "$work/qwen.json"
    expect 0 "$pstar" export "$work/qwen" "$2" --dtype bf16 --tokenizer "$work/tokenizer"
}
