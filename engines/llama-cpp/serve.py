"""Serve one GGUF file with the llama.cpp server that xllamacpp carries, on 127.0.0.1, until stopped.

usage: serve.py MODEL.gguf PORT
"""

import signal
import sys

import xllamacpp

SLOTS = 4
WINDOW = 32768  # tokens of each slot; the teleprompter is exact up to there


def main() -> None:
    model, port = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"gpt-oss-teleprompter"}
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * WINDOW
    # threads that wait for each other by spinning: with more of them than free cores a token takes seconds
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.ui = False
    # blocked before the server starts its threads, which inherit it: only sigwait sees them
    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    server = xllamacpp.Server(params)
    print("listening on", server.listening_address, flush=True)
    signal.sigwait(stop)


if __name__ == "__main__":
    main()
