from mitmproxy.master import Master
from mitmproxy.options import Options

master: Master
options: Options
