#!/bin/sh
# Conversations become the ids of transformers' apply_chat_template, and the assistant's tokens are the targets. Needs an interpreter
# with transformers: $PS_TRANSFORMERS_PYTHON, or build/transformers (make test-data); skipped without.
set -u
build=$1
. test/cli/cli_lib.sh

python=${PS_TRANSFORMERS_PYTHON:-$root/build/transformers/bin/python}
[ -x "$python" ] || { echo "no $python: make test-data makes it"; exit 77; }

export TRANSFORMERS_VERBOSITY=error TRANSFORMERS_OFFLINE=1
mkdir "$work/chat"
expect 0 "$python" -W ignore test/golden/check_chat.py "$pstar" "$work/chat"
cat "$work/out"
