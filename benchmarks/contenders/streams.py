"""Reading tokens one by one, through the attributes that openai_harmony's StreamableParser and ours both have."""


def stream(parser, run):
    """Every token, and the text that it brought."""
    reader = parser()
    process = reader.process
    for token in run:
        process(token)
        reader.last_content_delta  # noqa: B018
    return texts(reader)


def read_each_time(parser, run, read):
    """Every token, and one attribute after each."""
    reader = parser()
    process = reader.process
    for token in run:
        process(token)
        read(reader)
    return texts(reader)


def texts(reader):
    return [*(message.content[0].text for message in reader.messages), reader.current_content]
