"""Golden vectors: inputs of Harmony, and what two independent implementations agree that they mean.

file      a vector file: reading, its rules, writing it in its one form
schema    the JSON Schema of each kind, where jsonschema is installed
inputs    what the inputs of each kind say
ours      harmony_ref's answers
official  openai-harmony's answers, where it is installed
agreement comparing the answers with the file, and filling them in
"""
