"""Golden vectors: Harmony inputs with the output that two independent implementations agree on.

| module                   | content                                                        |
|--------------------------|----------------------------------------------------------------|
| `vector_file`            | reader, rules and writer of a vector file                      |
| `json_schemas`           | JSON Schema of each kind, applied if jsonschema is installed   |
| `inputs`                 | parsed inputs of each kind                                     |
| `implementation`         | interface of an implementation                                 |
| `answers_harmony_ref`    | answers of harmony_ref                                         |
| `answers_huggingface`    | answers of harmony_ref for chat templates and response schemas |
| `answers_openai_harmony` | answers of openai-harmony, if installed                        |
| `implementations`        | list of the available implementations                          |
| `agreement`              | comparison of the answers with the files, and their completion |
"""
