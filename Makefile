# make run, make test, make check, make soak, make bench, make loadtest: each does its own set-up.
#   make run MODEL=/models/mine WORKERS=2 PORT=8080      make test ARGS="tests/launcher -x"
#   make soak ARGS="--minutes 3 --seed 7"                make bench WHAT="ttft submit" PEERS=litellm
#   make loadtest ARGS="--step-users 4 --most-users 40"

PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && exit; \
	done; echo python3)

.PHONY: run test check soak bench loadtest

# The shell's parent is make: by its pid the guard sees whether make still lives once it can be told of its death.
run test check soak bench loadtest:
	@command -v "$(PYTHON)" >/dev/null || { echo "palaver: there is no $(PYTHON). Install Python 3.11 or newer." >&2; exit 1; }
	@PALAVER_PARENT_PID=$$PPID exec "$(PYTHON)" -m launcher $@
