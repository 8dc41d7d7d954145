"""Functions that build the changes of defects: of a JSON body, of a conversation, of the events of the parser."""
