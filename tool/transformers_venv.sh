#!/bin/sh
# Make a virtual environment with Hugging Face's transformers on Debian's PyTorch, for the tests that compare with it.
#
# usage: tool/transformers_venv.sh DEST          afterwards DEST/bin/python is the interpreter to use
# Needs python3-torch, python3-numpy, python3-venv and python3-pip of Debian 12 (make test-data installs them) and PyPI,
# through pip: some 20 MB. Nothing is done when DEST has these versions.
#
# 4.47 is the last version of transformers whose Trainer runs with PyTorch 1.13: 4.48 imports LRScheduler, which PyTorch
# 2 has (its models run up to 4.49). It knows Bert, GPT2, Llama, Mistral and Qwen2, not Qwen3. accelerate 1.2 is the last
# that says it runs with PyTorch 1.13, so that pip leaves Debian's (up to 1.14 it does run; 1.15 imports DTensor).
# huggingface_hub 0.27 is the last that does not bring hf-xet.
set -u
packages='transformers==4.47.1 accelerate==1.2.1 psutil==7.0.0 tokenizers==0.21.4 safetensors==0.5.3
    huggingface_hub==0.27.1 regex==2024.11.6 filelock==3.18.0 fsspec==2025.3.2 packaging==24.2 tqdm==4.67.1
    jinja2==3.1.6 markupsafe==3.0.2'
python=/usr/bin/python3

[ $# -eq 1 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed -n '2,6p' >&2; exit 2; }
dest=$1
stamp=$dest/packages
# shellcheck disable=SC2086 # a list of words
wanted=$(printf '%s\n' $packages)
if [ -x "$dest/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    echo "$dest: there"
    exit 0
fi

fail() {
    echo "transformers_venv: $1" >&2
    rm -rf "$dest"
    exit 1
}
if [ -e "$dest" ] && [ ! -e "$dest/pyvenv.cfg" ] && [ -n "$(ls -A "$dest" 2>/dev/null)" ]; then
    echo "transformers_venv: $dest is there and is no virtual environment; remove it, or name another folder" >&2
    exit 1
fi
echo "making $dest: transformers 4.47 on Debian's PyTorch"
rm -rf "$dest"
mkdir -p "$(dirname "$dest")" || exit 1
$python -m venv --system-site-packages "$dest" || fail "no virtual environment; Debian: apt-get install python3-venv"
# shellcheck disable=SC2086
"$dest/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: $packages ||
    fail "pip could not install $packages"
"$dest/bin/python" -W ignore - <<'EOF' || fail "transformers does not work with the PyTorch that is installed"
import torch, transformers, accelerate
from transformers import Trainer
from transformers import BertModel, GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM
print(f"transformers {transformers.__version__}, accelerate {accelerate.__version__}, PyTorch {torch.__version__}")
EOF
printf '%s\n' "$wanted" >"$stamp"
