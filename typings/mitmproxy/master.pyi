from mitmproxy.addonmanager import AddonManager
from mitmproxy.options import Options

class Master:
    options: Options
    addons: AddonManager
    async def run(self) -> None: ...
    def shutdown(self) -> None: ...
