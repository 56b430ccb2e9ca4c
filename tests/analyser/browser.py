"""browser - Debian's chromium without a window, driven through WebDriver: opens pages from files, and waits for what they say.

Chromedriver tells its port on stdout, and a page tells with `data-drawn` that it is drawn. No wait has a duration: the limits
below only end a test that hangs.
"""

import re
import subprocess
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.remote_connection import ChromeRemoteConnection
from selenium.webdriver.common.proxy import Proxy, ProxyType
from selenium.webdriver.remote.client_config import ClientConfig

CHROMIUM, DRIVER = '/usr/bin/chromium', '/usr/bin/chromedriver'
LIMIT = 400  # seconds
# Each frame of the page asks once whether a condition holds.
UNTIL = 'const done = arguments[0]; const look = () => { if (%s) done(); else requestAnimationFrame(look); }; look();'


class Browser:
    def __init__(self, directory, environment):
        self.server = subprocess.Popen([DRIVER, '--port=0'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                       env=environment, start_new_session=True)
        self.driver = None
        try:
            port = next(found[1] for found in (re.search(r'started successfully on port (\d+)', line) for line in self.server.stdout) if found)
            self.driver = self.start(f'http://127.0.0.1:{port}', directory)
        except BaseException:
            self.close()
            raise

    def start(self, server, directory):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for word in ('--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run', '--no-proxy-server', '--window-size=1200,900',
                     f'--user-data-dir={directory}'):
            options.add_argument(word)
        options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
        config = ClientConfig(server, timeout=LIMIT, proxy=Proxy({'proxyType': ProxyType.DIRECT}))
        driver = webdriver.Remote(ChromeRemoteConnection(server, client_config=config), options=options)
        driver.set_script_timeout(LIMIT)
        driver.set_page_load_timeout(LIMIT)
        return driver

    def open(self, path):
        """Opens a page, waits until it is drawn, and fails if it says that it could not be drawn."""
        self.driver.get(Path(path).as_uri())
        self.until('document.body.dataset.drawn')
        failed = self.run('return document.body.dataset.failed || null')
        assert failed is None, failed

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, condition):
        self.driver.execute_async_script(UNTIL % condition)

    def console(self):
        """What the browser's console has had to say since the last call."""
        return [entry['message'] for entry in self.driver.execute('getLog', {'type': 'browser'})['value']]

    def devtools(self, command, **parameters):
        self.driver.execute('executeCdpCommand', {'cmd': command, 'params': parameters})

    def rows(self, table):
        """The exact values of a table's rows, as the page has them, by column."""
        return self.run('''const t = document.getElementById(arguments[0]); if (!t) return [];
            return [...t.tBodies[0].rows].map((row) => Object.fromEntries([...row.cells].map((cell) => [cell.dataset.key, JSON.parse(cell.dataset.value)])));''', table)

    def whole(self, table):
        """Shows all rows of a table, and returns them."""
        self.run('''const tools = document.getElementById(arguments[0])?.closest('.scroll').previousSibling; const more = tools && tools.querySelector('button');
            if (more && !more.hidden && more.textContent.startsWith('show all')) more.click();''', table)
        return self.rows(table)

    def close(self):
        if self.driver:
            self.driver.quit()
        self.server.terminate()
        self.server.wait()
        self.server.stdout.close()
