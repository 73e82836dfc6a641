from smolagents.monitoring import AgentLogger
from smolagents.remote_executors import E2BExecutor

executor = E2BExecutor([], AgentLogger())
try:
    executor.send_variables({})
    print("answer", executor("x = 6 * 7\nprint(x)\nx").logs.strip())
finally:
    executor.cleanup()
