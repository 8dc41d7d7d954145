RESPONSES: dict[int, str]
