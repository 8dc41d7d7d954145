"""The `llama-server` that Ollama starts for a model: the one inside xllamacpp, with the arguments that Ollama passes.

Ollama finds the file `llama-server` in `lib/ollama`; `setup.sh` writes one there that runs this module. Arguments that only choose hardware,
logging or the user interface are ignored. Without a model, Ollama asks for devices: the list is empty.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the arguments that change what the server does."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", default="")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-c", dest="window", type=int, default=0)
    parser.add_argument("-np", dest="slots", type=int, default=1)
    parser.add_argument("-b", dest="batch", type=int)
    parser.add_argument("-ub", dest="small_batch", type=int)
    parser.add_argument("--keep", type=int, default=0)
    parser.add_argument("--context-shift", action="store_true")
    parser.add_argument("--no-jinja", action="store_true")
    parser.add_argument("--chat-template", default="")
    return parser.parse_known_args(arguments)[0]


def serve(options: argparse.Namespace) -> None:
    """Serve the model until the process is ended."""
    import xllamacpp  # noqa: PLC0415 # the tests read the arguments without it

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.hostnames = [options.host]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.window
    params.n_batch = options.batch or params.n_batch
    params.n_ubatch = options.small_batch or params.n_ubatch
    params.n_keep = options.keep
    params.ctx_shift = options.context_shift
    params.use_jinja = not options.no_jinja
    params.chat_template = options.chat_template
    params.ui = False
    params.warmup = False
    # threads that wait for each other by spinning: with more of them than free cores a token takes seconds
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    # blocked before the server starts its threads, which inherit it: only sigwait sees them
    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    server = xllamacpp.Server(params)
    signal.sigwait(stop)
    del server


def main() -> None:
    """Serve, or list the devices."""
    options = read_arguments(sys.argv[1:])
    if options.model:
        serve(options)
    else:
        print("system_info: no device", file=sys.stderr)
        print("Available devices:")


if __name__ == "__main__":
    main()
