"""Serve one GGUF file with the llama.cpp server that xllamacpp carries, on 127.0.0.1, until stopped.

usage: serve.py MODEL.gguf PORT
"""

import signal
import sys
import threading

import xllamacpp
from bridge import bridge, outlived

ALIAS = "gpt-oss-teleprompter"
SLOTS = 4
WINDOW = 32768  # tokens of each slot; the teleprompter is exact up to there


def name_the_model_and_host(params: xllamacpp.CommonParams) -> None:
    """Set model and host. The names of the parameters, and whether they are lists, depend on the build."""
    if hasattr(params, "hostnames"):
        params.hostnames = ["127.0.0.1"]
    else:
        params.hostname = "127.0.0.1"
    params.model_alias = {ALIAS} if isinstance(params.model_alias, set) else ALIAS
    for page in {"ui", "webui"} & set(dir(params)):
        setattr(params, page, False)


def main() -> None:
    model, port = sys.argv[1:]
    listening = None if hasattr(xllamacpp.Server, "listening_address") else outlived(int(port))
    params = xllamacpp.CommonParams()
    params.model.path = model
    name_the_model_and_host(params)
    params.port = int(port)
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * WINDOW
    # threads that wait for each other by spinning: with more of them than free cores a token takes seconds
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.use_jinja = True  # the model's own chat template, which builds before 2026 use only on request
    if not hasattr(params, "hostnames"):
        params.verbosity = 10  # these builds ignore `verbose` of a request, and return the ids of answers (`__verbose`) only if they are started so
    # blocked before the server starts its threads, which inherit it: only sigwait sees them
    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    server = xllamacpp.Server(params)
    if listening is not None:
        threading.Thread(target=bridge(server, ALIAS, listening).serve_forever, daemon=True).start()
    print("listening on port", port, flush=True)
    signal.sigwait(stop)


if __name__ == "__main__":
    main()
