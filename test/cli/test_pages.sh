#!/bin/sh
# README.md and the pages of doc/: each fenced block is run by a test or listed with why not; links, columns, index.
# usage: test/cli/test_pages.sh BUILD_FOLDER
set -u
. test/cli/skip_lib.sh
command -v python3 >/dev/null || skip "python3"
exec python3 tool/check_pages.py
