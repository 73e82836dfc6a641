from camel.interpreters import E2BInterpreter

interpreter = E2BInterpreter(require_confirm=False)
print("answer", interpreter.run("print(6 * 7)", "python"))
