# kill_lib.sh - a run so small that it takes a second, for scripts that kill and resume it; sourced after cli_lib.sh.
# Token file of bytes (format of nanoGPT), 127 ids.
LC_ALL=C tr -cd '\40-\176' <"$root/data/text/moby-dick.txt" | head -c 40000 | LC_ALL=C sed 's/./&\x00/g' >"$work/bytes.u16"
cat >"$work/mini.json" <<EOT
{
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
  "bf16": {"enabled": true},
  "gradient_clipping": 1.0,
  "model": {"vocab_size": 127, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2},
  "data": {"train": "$work/bytes.u16"},
  "memory": {"device": "1MB", "host": 0, "disk": "20MB", "disk_path": "$work"},
  "train": {"steps": 30, "threads": 1, "save": false, "output_dir": "$work/run", "save_interval": 1, "log_interval": 1000}
}
EOT
