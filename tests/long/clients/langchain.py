import e2b
from langchain_e2b import E2BSandbox

sandbox = e2b.Sandbox.create(timeout=300)
try:
    backend = E2BSandbox(sandbox=sandbox)
    backend.write("/home/user/six.py", "print(6 * 7)\n")
    print("answer", backend.execute("python3 /home/user/six.py").output)
    assert "six.py" in str(backend.ls("/home/user")), backend.ls("/home/user")
finally:
    sandbox.kill()
