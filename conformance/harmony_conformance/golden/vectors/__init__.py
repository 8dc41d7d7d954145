"""Golden vectors: inputs of Harmony, and what two independent implementations agree that they mean.

file             a vector file: reading, its rules, writing it in its one form
schema           the JSON Schema of each kind, where jsonschema is installed
inputs           what the inputs of each kind say
implementation   what answers vectors
ours             harmony_ref's answers
hugging_face     harmony_ref's answers about chat templates and response schemas
official         openai-harmony's answers, where it is installed
implementations  those that are there
agreement        comparing the answers with the files, and filling them in
"""
