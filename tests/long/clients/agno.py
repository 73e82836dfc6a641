import os

from agno.tools.e2b import E2BTools

tools = E2BTools(api_key=os.environ["E2B_API_KEY"])
try:
    print("answer", tools.run_python_code("6 * 7"))
    print("answer", tools.run_command("echo $((6*7))"))
finally:
    tools.sandbox.kill()
