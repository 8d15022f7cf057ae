#!/bin/sh
# A run never destroys another: folders that hold one are refused, unless the user says so, and keep their bytes.
set -u
build=$1
. test/cli/cli_lib.sh
cd "$work" || exit 1
sed -i 's/, "output_dir": "[^"]*"//' tiny.json
train() { "$pstar" train tiny.json train.steps=2 "$@"; }
bytes_of() { (cd "$1" && find . -type f ! -name .lock -exec cksum {} + | sort); }

# refused FOLDER TEXT ARGUMENTS...: status 2, the text is said, and no byte of the folder has changed
refused() {
    folder=$1 text=$2
    shift 2
    bytes_of "$folder" >before
    expect 2 train "$@"
    says err "$text"
    bytes_of "$folder" | cmp -s - before || fail "the files of $folder have changed"
}
finished="holds the weights of an earlier run (model.safetensors, 2 steps)"

# Results go to a folder of the configuration's name, and the first line says so.
expect 0 train
[ "$(head -n 1 out)" = "results go to runs/tiny" ] || fail "the first line is: $(head -n 1 out)"
[ -s runs/tiny/model.safetensors ] && [ -s runs/tiny/checkpoints/latest ] || fail "not in runs/tiny: $(ls -R runs)"
refused runs/tiny "runs/tiny $finished: go on with --resume, name another train.output_dir, or add --overwrite"

# Weights without a checkpoint.
expect 0 train train.output_dir=bare
rm -r bare/checkpoints
refused bare "bare $finished: name another train.output_dir, or add --overwrite" train.output_dir=bare
refused bare "train.init_from=bare/model.safetensors train.output_dir=NEW" train.output_dir=bare --resume
refused bare "bare $finished: name another" train.output_dir=bare --resume runs/tiny/checkpoints
refused bare "bare $finished: name another" train.output_dir=bare train.steps=0
expect 0 train train.output_dir=new train.init_from=bare/model.safetensors

# Steps alone: a run that was killed. --resume begins it again.
expect 0 train train.output_dir=steps train.save=false
[ ! -e steps/model.safetensors ] && [ ! -e steps/checkpoints ] || fail "train.save=false saves: $(ls steps)"
refused steps "steps holds the metrics of an earlier run (metrics.jsonl, 2 steps): name another" train.output_dir=steps
expect 0 train train.output_dir=steps train.save=false --resume

# Checkpoints alone.
rm runs/tiny/model.safetensors runs/tiny/metrics.jsonl
refused runs/tiny "runs/tiny holds the checkpoints of an earlier run (checkpoints): go on with --resume"

# With --overwrite what is the run's goes, and nothing else; not before the new run can begin.
echo mine >runs/tiny/notes.txt
bytes_of runs/tiny >before
expect 2 train --overwrite train.seed=-1
bytes_of runs/tiny | cmp -s - before || fail "a run that cannot begin removes another"
expect 2 train --overwrite --resume
says err "use one of them"
expect 0 train --overwrite train.steps=1
[ "$(ls runs/tiny/checkpoints | tr '\n' ' ')" = "latest step-000001 " ] || fail "left: $(ls runs/tiny/checkpoints)"
[ "$(cat runs/tiny/notes.txt)" = mine ] || fail "another file is gone"
[ "$(grep -c '"loss"' runs/tiny/metrics.jsonl)" = 1 ] || fail "metrics of two runs"

# An older checkpoint of a run that has ended, with nothing to do: weights, log and summary of its end stay.
expect 0 train train.output_dir=long train.steps=4 train.save_interval=2 train.keep_last=0
bytes_of long >before
expect 0 train train.output_dir=long --resume=long/checkpoints/step-000002
says out "nothing to do: the run in long has ended after step 4, train.steps = 2"
bytes_of long | cmp -s - before || fail "the end of a run is lost"

# What the run begins with is not written over, whatever the user says.
refused long "train.output_dir = long holds what the run begins with (train.init_from = long/model.safetensors)" \
    train.output_dir=long train.init_from=long/model.safetensors --overwrite
says err "would be written over: name another train.output_dir"

# The folder is named by what the configuration is called, however its path is written.
mkdir model
cat >model/config.json <<EOF
{"model_type": "gpt2", "vocab_size": 300, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 1}
EOF
[ "$(cd model && "$pstar" train . 2>/dev/null | head -n 1)" = "results go to runs/model" ] || fail "train . in model"
[ "$("$pstar" train model/ 2>/dev/null | head -n 1)" = "results go to runs/model" ] || fail "train model/"
[ ! -e runs/.lock ] || fail "runs itself is an output folder"

# Two options that say what the model is.
expect 2 "$pstar" plan tiny.json model.preset=gpt2 model.from_pretrained=model
says err "model.preset and model.from_pretrained both say what the model is: remove one of them"
