"""For `mitmdump -s`: streams every answer through and looks at nothing."""


def responseheaders(flow) -> None:
    flow.response.stream = True
