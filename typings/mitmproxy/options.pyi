from mitmproxy.optmanager import OptManager

class Options(OptManager):
    def __init__(self, **kwargs: object) -> None: ...
