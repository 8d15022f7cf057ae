# skip_lib.sh - a script that could not try something ends as skipped, and says what; sourced.

# skip WHY: nothing can be tried here
skip() {
    echo "skipped: $*"
    exit 77
}

# untried WHAT: the script continues with the rest; `finish` is its last line
not_tried=0
untried() {
    echo "not tried: $*"
    not_tried=77
}
finish() { exit $not_tried; }
