"""Write the vocabulary that harmony_ref carries to standard output, in the form of o200k_base.tiktoken."""

import base64
import sys

from harmony_ref.tokenizer import vocabulary

for piece, rank in sorted(vocabulary.ranks().items(), key=lambda entry: entry[1]):
    sys.stdout.write(f"{base64.b64encode(piece).decode()} {rank}\n")
